"""`rlzoo-plus sweep` and `ls` for sweeps in a store, as a user types them on any machine."""

import json
from types import SimpleNamespace

import pytest
from support.training import tiny_config

from rlzoo_plus.commands import sweep_in_store
from rlzoo_plus.store.cache import forget_store, remember_store, store_of
from rlzoo_plus.store.contract import StoreError
from rlzoo_plus.store.lease import (
    CANCELLED,
    FAILED,
    FINISHED,
    RELEASED,
    RUNNING,
    STOP,
    RunLease,
    list_leases,
    read_record,
)
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.workers.store_sweep import StoreSweep

pytestmark = pytest.mark.usefixtures("here")
ABOUT = {"version": "1", "code": None}
SCORE = {"step": 64, "mean_return": 41.5, "std_return": 1.0}


def _submit(store, count=6, name="first"):
    """Submit jobs that differ in their seeds; return their keys."""
    configs = [tiny_config("ppo", "tests/TinyReach-v0", f"seed={seed}") for seed in range(count)]
    jobs = [make_job(c.model_copy(update={"sweep": f"./{name}"}), "train") for c in configs]
    Submissions(store, name).add([{"event": "added", **job.record()} for job in jobs], ABOUT)
    return [job.key for job in jobs]


def _train(store, key, state, worker="lab-1", name="first", **report):
    """Write what a worker of a run reports."""
    lease = RunLease(store, f"{name}/{key}", worker)
    assert lease.claim(list_leases(store, name))
    lease.beat(state, **report)
    return lease


def _record(store, key, name="first"):
    return read_record(store.get(f"live/{name}/{key}.json", 2**16)[0])


def _expire(monkeypatch):
    """Let every lease that was not renewed just now be expired."""
    monkeypatch.setattr("rlzoo_plus.store.live.EXPIRES_S", 0.0)


def test_status_tells_the_state_of_each_run_from_its_lease(store, say):
    waiting, running, done, failed, cancelled, released = _submit(store)
    _train(store, running, RUNNING, "lab-1", steps=32, rate=8.0, evaluation=SCORE)
    more = {"best": SCORE, "final": {**SCORE, "mean_return": 40.0}, "training_time_s": 9.5}
    _train(store, done, FINISHED, "lab-2", steps=64, **more)
    _train(store, failed, FAILED, "lab-1", reason="the gearbox broke", code=1)
    _train(store, cancelled, CANCELLED, reason="enough")
    _train(store, released, RELEASED, steps=16)
    code, out, _ = say("sweep", "status", f"{store.url}/first", "--json")
    assert code == 0
    data = json.loads(out)
    assert (data["sweep"], data["workers"]) == (f"{store.url}/first", 1)
    assert data["counts"] == {"waiting": 3, "running": 1, "done": 1, "failed": 1}
    jobs = {job["path"]: job for job in data["jobs"]}
    assert list(jobs) == [waiting, running, done, failed, cancelled, released]
    assert jobs[running]["worker"] == "lab-1"
    assert (jobs[running]["steps"], jobs[running]["steps_per_s"]) == (32, 8.0)
    found = jobs[done]
    assert (found["best"], found["final"], found["time_s"]) == (41.5, 40.0, 9.5)
    assert jobs[failed]["reason"] == "the gearbox broke"
    assert (jobs[cancelled]["state"], jobs[cancelled]["cancelled"]) == ("waiting", True)
    assert (jobs[released]["steps"], jobs[waiting]["beat_age_s"]) == (16, None)
    (row,) = data["summary"]
    assert (row["n_done"], row["n_failed"], row["n_open"], row["best_run"]) == (1, 1, 4, done)

    code, out, _ = say("sweep", "status", f"{store.url}/first")
    lines = out.splitlines()
    assert lines[:2] == [
        f"sweep {store.url}/first",
        "6 jobs: 3 waiting, 1 running, 1 done, 1 failed; about 32s left",
    ]
    assert f"failed: {failed}: the gearbox broke" in lines
    assert "1 of those that wait are cancelled, until `sweep resume`" in lines
    assert lines[-1] == "1 worker at work"


def test_a_second_look_requests_nothing_but_listings(store, monkeypatch):
    keys = _submit(store, 6)
    for key in keys:
        _train(store, key, RUNNING)
    requests = []
    for method in ("get", "list"):
        original = getattr(store, method)

        def counted(name, *more, original=original, method=method):
            requests.append(method)
            return original(name, *more)

        monkeypatch.setattr(store, method, counted)

    def look():
        requests.clear()
        # As the next process: what is known is on the disk.
        views = StoreSweep(store, "first").views()
        return len(views), requests.count("get"), requests.count("list")

    assert look() == (6, 7, 2)
    assert look() == (6, 0, 2)
    store.put(f"live/first/{keys[0]}.json", json.dumps({"state": FAILED}).encode())
    assert look() == (6, 1, 2)
    _submit(store, 8)
    assert look() == (8, 1, 2)


def test_a_run_whose_worker_is_gone_waits_for_another(folder, say, monkeypatch):
    key, *_ = _submit(folder, 1)
    _train(folder, key, RUNNING, steps=32)
    _expire(monkeypatch)
    _, out, _ = say("sweep", "status", f"{folder.url}/first", "--json")
    (job,) = json.loads(out)["jobs"]
    assert (job["state"], job["steps"]) == ("waiting", 32)
    assert job["reason"] == "its worker is gone; it can go on"
    _, out, _ = say("sweep", "status", f"{folder.url}/first")
    assert out.splitlines()[-1].endswith(f"worker {folder.url}/first")


def test_cancel_asks_workers_and_cancels_the_rest_at_once(store, say, monkeypatch):
    _, running, done = keys = _submit(store, 3)
    lease = _train(store, running, RUNNING)
    _train(store, done, FINISHED)
    code, out, _ = say("sweep", "cancel", f"{store.url}/first")
    assert code == 0
    assert "cancelled 1 run that no worker trains" in out
    assert "asked the workers of 1 run to stop" in out
    states = [_record(store, key)["state"] for key in keys]
    assert states == [CANCELLED, RUNNING, FINISHED]
    lease.beat(RUNNING)
    assert lease.request["ask"] == STOP
    _, out, _ = say("sweep", "status", f"{store.url}/first", "--json")
    assert [job["reason"] for job in json.loads(out)["jobs"]][1] == "asked to stop"


def test_resume_lets_workers_take_cancelled_runs_and_no_others(store, say):
    cancelled, failed, waiting = _submit(store, 3)
    _train(store, failed, FAILED, reason="broke")
    say("sweep", "cancel", f"{store.url}/first")
    code, out, _ = say("sweep", "resume", f"{store.url}/first")
    # As of a local sweep: some had failed before.
    assert code == 1
    assert "workers may take 2 cancelled runs again" in out
    assert f"worker {store.url}/first" in out
    listed = list_leases(store, "first")
    assert RunLease(store, f"first/{cancelled}", "two").claim(listed)
    assert RunLease(store, f"first/{waiting}", "two").claim(listed)
    assert not RunLease(store, f"first/{failed}", "two").claim(listed)

    code, out, _ = say("sweep", "retry-failed", f"{store.url}/first")
    assert code == 0
    assert "workers may take 1 failed run again" in out
    assert RunLease(store, f"first/{failed}", "two").claim(list_leases(store, "first"))


def test_a_run_whose_worker_died_after_it_was_asked_to_stop_is_cancelled(folder, say, monkeypatch):
    (key,) = _submit(folder, 1)
    _train(folder, key, RUNNING)
    say("sweep", "cancel", f"{folder.url}/first")
    _expire(monkeypatch)
    _, out, _ = say("sweep", "status", f"{folder.url}/first", "--json")
    assert json.loads(out)["jobs"][0]["cancelled"]
    code, _, _ = say("sweep", "resume", f"{folder.url}/first")
    assert (code, _record(folder, key)["state"]) == (0, RELEASED)


def test_prune_lists_unfinished_runs_and_removes_them_with_yes(store, say):
    waiting, running, done, failed = _submit(store, 4)
    _train(store, running, RUNNING)
    _train(store, done, FINISHED)
    _train(store, failed, FAILED, steps=8)
    code, out, _ = say("sweep", "prune", f"{store.url}/first")
    assert code == 0
    assert out.splitlines() == [
        f"would remove {waiting} (waiting, 0 steps)",
        f"would remove {failed} (failed, 8 steps)",
        "nothing was removed; add --yes",
    ]
    _, out, _ = say("sweep", "prune", f"{store.url}/first", "--yes")
    assert out.splitlines()[-1] == (
        "their objects stay in the store, until a lifecycle rule removes them"
    )
    assert list(Submissions(store, "first").records()) == [running, done]
    _, out, _ = say("sweep", "prune", f"{store.url}/first", "--yes")
    assert out == "nothing to remove\n"
    # The objects of a removed run stay.
    assert _record(store, failed)["state"] == FAILED


def test_logs_show_the_last_lines_of_running_and_failed_runs(store, say):
    waiting, running, failed = _submit(store, 3)
    _train(store, running, RUNNING)
    _train(store, failed, FAILED)
    lines = [f"line {number}" for number in range(100)]
    log = "\n".join([*lines, "0%\r50%\rbar", "\x1b[2Jevil"]) + "\n"
    store.put(f"runs/first/{failed}/log.txt", log.encode())
    code, out, _ = say("sweep", "logs", f"{store.url}/first", "--lines", 3)
    assert code == 0
    assert out.splitlines() == [
        *(f"== {running} (running)", "no log yet"),
        *(f"== {failed} (failed)", "line 99", "bar", "\\x1b[2Jevil"),
    ]
    _, out, _ = say("sweep", "logs", f"{store.url}/first", waiting.rpartition("/")[2])
    assert out.splitlines() == [f"== {waiting} (waiting)", "no log yet"]
    code, _, err = say("sweep", "logs", f"{store.url}/first", "\x1b[2Jsac")
    assert code == 2
    assert err.startswith("error: \\x1b[2Jsac is in the path of none of the 3 jobs, such as ")
    assert err.count("\n") == 1


def test_a_log_that_cannot_be_read_does_not_hide_the_others(folder, say, monkeypatch):
    first, second = _submit(folder, 2)
    tail = type(folder).get_tail

    def flaky(store, name, most):
        if first in name:
            raise StoreError("busy")
        return tail(store, name, most)

    monkeypatch.setattr(type(folder), "get_tail", flaky)
    folder.put(f"runs/first/{second}/log.txt", b"hello\n")
    code, out, _ = say("sweep", "logs", f"{folder.url}/first", "ppo")
    shown = [f"== {first} (waiting)", "busy", f"== {second} (waiting)", "hello"]
    assert (code, out.splitlines()) == (0, shown)


def test_logs_of_a_local_sweep(folder, say, tmp_path):
    (job,) = [make_job(tiny_config("ppo", "tests/TinyReach-v0", f"sweep={tmp_path}/here"))]
    Ledger(tmp_path / "here").add([job])
    job.path.mkdir(parents=True)
    (job.path / "log.txt").write_text("one\ntwo\nthree\n")
    code, out, _ = say("sweep", "logs", "./here", "ppo", "--lines", 2)
    assert code == 0
    assert out.splitlines() == [f"== {job.key} (waiting)", "two", "three"]
    _, out, _ = say("sweep", "logs", "./here")
    assert "no job runs, and none has failed" in out


def test_a_sweep_that_was_submitted_here_has_its_local_name(folder, say, tmp_path):
    _submit(folder, 2)
    remember_store(tmp_path / "outputs/sweeps/first", f"{folder.url}/first")
    for name in ("first", "outputs/sweeps/first", "./store/first"):
        code, out, _ = say("sweep", "status", name)
        assert (code, out.splitlines()[1]) == (0, "2 jobs: 2 waiting")
    code, _, err = say("sweep", "status", "second")
    assert code == 2
    assert "no such sweep" in err


def test_watching_ends_when_no_run_goes_on(folder, say, monkeypatch):
    first, second = _submit(folder, 2)

    def story():
        lease = _train(folder, first, RUNNING)
        yield
        lease.beat(FINISHED)
        yield
        yield
        _train(folder, second, FAILED, reason="broke")
        yield

    moments = story()
    sleeps = []
    happens = SimpleNamespace(sleep=lambda s: (sleeps.append(s), next(moments, None)))
    monkeypatch.setattr(sweep_in_store, "time", happens)
    code, out, _ = say("sweep", "status", f"{folder.url}/first", "--watch")
    assert code == 0
    shown = [line for line in out.splitlines() if line.startswith("2 jobs: ")]
    assert shown == [
        "2 jobs: 2 waiting",
        "2 jobs: 1 waiting, 1 running",
        # Nothing is said twice.
        "2 jobs: 1 waiting, 1 done",
        "2 jobs: 1 done, 1 failed",
    ]
    assert len(sleeps) == 4


def test_watching_survives_a_store_that_is_gone_for_a_while(folder, say, monkeypatch):
    (key,) = _submit(folder, 1)
    _train(folder, key, FINISHED)
    views, calls = sweep_in_store.StoreSweep.views, []

    def flaky(sweep):
        calls.append(1)
        if len(calls) == 1:
            raise StoreError("gone")
        return views(sweep)

    monkeypatch.setattr(sweep_in_store.StoreSweep, "views", flaky)
    monkeypatch.setattr(sweep_in_store, "time", SimpleNamespace(sleep=lambda _: None))
    code, out, _ = say("sweep", "status", f"{folder.url}/first", "--watch")
    assert code == 0
    assert out.splitlines()[0] == "gone; trying again"


def test_ls_has_a_line_for_each_sweep_and_each_folder_of_runs(store, say):
    first, second, third = _submit(store, 3)
    _submit(store, 2, name="unbegun")
    _train(store, first, FINISHED, best=SCORE)
    _train(store, second, RUNNING, evaluation={"mean_return": 99.0})
    _train(store, third, CANCELLED)
    _train(store, "ppo/a", RELEASED, name="pushed")
    code, out, _ = say("ls", store.url, "--json")
    assert code == 0
    found = {folder["name"]: folder for folder in json.loads(out)}
    assert list(found) == ["first", "pushed", "unbegun"]
    counts = {"waiting": 1, "running": 1, "done": 1, "failed": 0}
    assert (found["first"]["counts"], found["first"]["cancelled"]) == (counts, 1)
    assert (found["first"]["best"], found["first"]["best_run"]) == (99.0, f"first/{second}")
    assert found["first"]["newest_s"] < 60
    assert [found[name]["is_sweep"] for name in found] == [True, False, True]
    assert (found["unbegun"]["newest_s"], found["unbegun"]["counts"]["waiting"]) == (None, 2)
    code, out, _ = say("ls", store.url)
    head, line, *_, last = out.splitlines()
    assert head.split()[:2] == ["name", "done"]
    assert line.split()[:7] == ["first", "1", "-", "1", "1", "(1", "cancelled)"]
    assert last == f"more: rlzoo-plus sweep status {store.url}/NAME"


def test_ls_leaves_out_what_was_taken_out_of_a_sweep_and_counts_what_came_later(folder, say):
    first, second, _ = _submit(folder, 3)
    _train(folder, first, FAILED)
    _train(folder, second, RUNNING)

    def counts():
        (found,) = json.loads(say("ls", folder.url, "--json")[1])
        return found["counts"]

    assert counts() == {"waiting": 1, "running": 1, "done": 0, "failed": 1}
    say("sweep", "prune", f"{folder.url}/first", "--yes")
    assert counts() == {"waiting": 0, "running": 1, "done": 0, "failed": 0}
    _submit(folder, 5)
    assert counts() == {"waiting": 3, "running": 1, "done": 0, "failed": 1}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["sweep", "status", "s3://bucket"], "names no sweep. Write STORE/SWEEP"),
        (["sweep", "status", "s3://bucket/.."], "names no sweep. Write STORE/SWEEP"),
        (["sweep", "status", "ftp://host/lab/a"], "is neither s3://bucket/prefix nor a folder"),
        (["sweep", "resume", "store/first", "infra.workers=4"], "worker store/first --slots N"),
        (["sweep", "resume", "store/first", "--trust"], "--trust: the runs of"),
        (["ls", "gone"], "gone: no such folder"),
        (["ls", "ftp://host/lab"], "is neither s3://bucket/prefix nor a folder"),
    ],
)
def test_a_mistake_is_one_line(folder, say, words, text):
    _submit(folder, 1)
    code, _, err = say(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert text in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_sweep_that_is_not_there_is_one_line(store, say):
    code, _, err = say("sweep", "status", f"{store.url}/gone")
    assert code == 2
    listed = f"`rlzoo-plus ls {store.url}` lists what is there."
    assert err == f"error: {store.url} has no sweep 'gone'. {listed}\n"


# Which store a sweep of this machine was submitted to.


def test_a_sweep_is_found_by_any_way_to_write_its_directory(folder, tmp_path):
    remember_store(tmp_path / "sweeps" / "a", "s3://bucket/lab/a")
    assert store_of((tmp_path / "sweeps" / "a").relative_to(tmp_path)) == "s3://bucket/lab/a"
    assert store_of(tmp_path / "sweeps" / "b") is None
    assert not (tmp_path / "sweeps").exists()


def test_a_folder_is_remembered_for_every_working_directory(folder, tmp_path):
    remember_store(tmp_path / "a", "share/a")
    assert store_of(tmp_path / "a") == str(tmp_path / "share" / "a")


def test_a_sweep_that_runs_here_again_is_forgotten(folder, tmp_path):
    remember_store(tmp_path / "a", "s3://bucket/a")
    forget_store(tmp_path / "a")
    forget_store(tmp_path / "a")
    assert store_of(tmp_path / "a") is None
