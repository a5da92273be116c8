"""Workers: what they take and refuse, how runs go on elsewhere, and how they end."""

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from support.processes import environ_of_tests
from support.stores import ignore_conditions, s3_server
from support.training import tiny_config
from support.workers import (
    ABOUT,
    QUICK,
    SWEEP,
    make_worker,
    press,
    run_record,
    state_of,
    submit,
    take,
    task_record,
    when,
)

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.code import send_code
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import KILL, STOP, ask, reopen
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.workers.worker_loop import Wait

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs sessions")
JOBS = "rlzoo_plus.testing.jobs"
FUNCTIONS = tuple(f"{JOBS}:{name}" for name in ("say", "fail", "wait", "kill_itself"))
LONG = ("n_timesteps=1536", "checkpoint.every_steps=64", "eval.every_steps=128")


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


@pytest.fixture
def worker(store, tmp_path):
    """Return a function that makes a worker which may call the functions of the tests."""
    return lambda **options: make_worker(
        store, tmp_path / "here", **{"targets": FUNCTIONS, **options}
    )


# What is taken.


def test_all_jobs_are_done_and_told(store, worker):
    told = []
    keys = submit(store, *(task_record(f"tasks/job/{n}", "say", word=n) for n in range(3)))
    assert worker(tell=told.append).run() == 0
    assert [state_of(store, key)["state"] for key in keys] == ["finished"] * 3
    assert state_of(store, keys[0])["code"] == 0
    log = store.get(f"runs/{SWEEP}/{keys[1]}/log.txt", 10_000)[0]
    assert b"said 1" in log
    assert sorted(told) == sorted(f"{k} {how}" for k in keys for how in ("begins", "finished"))


def test_a_failed_job_is_told_with_its_reason_and_the_others_go_on(store, worker):
    keys = submit(store, task_record("a/b/1", "fail"), task_record("a/b/2", "say", word="yes"))
    assert worker(slots=1).run() == 1
    failed, finished = (state_of(store, key) for key in keys)
    assert (failed["state"], failed["code"]) == ("failed", 1)
    assert "the gearbox broke" in failed["reason"]
    assert finished["state"] == "finished"


def test_a_killed_job_has_failed(store, worker):
    (key,) = submit(store, task_record("a/b/1", "kill_itself"))
    assert worker().run() == 1
    assert state_of(store, key).items() >= {"state": "failed", "code": -9}.items()


def test_what_has_ended_is_not_done_again_until_it_is_opened(store, worker, tmp_path):
    (key,) = submit(store, task_record("a/b/1", "fail"))
    worker().run()
    assert worker().run() == 0
    assert reopen(store, f"{SWEEP}/{key}")
    assert worker().run() == 1


def test_a_job_of_another_worker_is_left_to_it(store, worker):
    mine, theirs = submit(store, *(task_record(f"a/b/{n}", "say", word=n) for n in range(2)))
    take(store, theirs)
    assert worker(wait=Wait.NO).run() == 0
    assert state_of(store, mine)["state"] == "finished"
    assert state_of(store, theirs)["worker"] == "another"


def test_a_worker_waits_for_others_and_takes_over_what_they_leave(store, worker):
    told = []
    (key,) = submit(store, task_record("a/b/1", "say", word=1))
    lease = take(store, key)
    when(lambda: told, lambda: lease.beat("released"))
    assert worker(tell=told.append).run() == 0
    assert told[0] == "waiting: other workers have 1 run"
    assert state_of(store, key)["state"] == "finished"


def test_an_expired_lease_is_taken_over(store, worker):
    (key,) = submit(store, task_record("a/b/1", "say", word=1))
    take(store, key)
    assert worker(times=replace(QUICK, expires_s=2.0)).run() == 0
    assert state_of(store, key)["worker"] != "another"


def test_jobs_that_come_later_are_done_too(store, worker):
    submit(store, task_record("a/b/1", "say", word=1))
    when(
        lambda: state_of(store, "a/b/1").get("state") == "finished",
        lambda: submit(store, task_record("a/b/2", "say", word=2)),
    )
    when(lambda: state_of(store, "a/b/2").get("state") == "finished", press)
    assert worker(wait=Wait.ALWAYS).run() == 75


def test_a_removed_job_is_not_taken(store, worker):
    submit(store, *(task_record(f"a/b/{n}", "say", word=n) for n in range(2)))
    submit(store, {"event": "removed", "job": "a/b/0"})
    worker().run()
    assert state_of(store, "a/b/0") == {}


# What stops it from outside.


@pytest.mark.slow
def test_a_worker_that_is_killed_at_any_moment_fails_no_run(tmp_path):
    words = (sys.executable, "-m", "support.dying_worker", str(tmp_path))
    done = subprocess.run(words, env=environ_of_tests(), capture_output=True, text=True, check=True)
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == 36
    for end in ends:
        states = {state["state"] for state in end["states"]}
        # One that dies gives back what it has; one that lives does the rest.
        assert states <= {"finished", *([] if end["code"] == 0 else ["released", None])}, end
        assert end["code"] in (0, 75), end


@pytest.mark.parametrize("problem", [EOFError("unexpected EOF"), OSError(28, "No space left")])
def test_a_run_that_this_machine_cannot_start_is_left_to_others(store, worker, caplog, problem):
    (key,) = submit(store, task_record("a/b/1", "say", word=1))

    class Broken(LocalLauncher):
        def submit(self, spec):
            raise problem

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rlzoo_plus.workers.worker_loop._TRY_AGAIN_S", 0.1)
        assert worker(launcher=Broken(1)).run() == 1
    assert state_of(store, key)["state"] == "released"
    assert caplog.text.count("a/b/1 cannot be started here: ") == 3
    assert worker().run() == 0
    assert state_of(store, key)["state"] == "finished"


# What is asked of it.


@pytest.mark.parametrize(("request_", "code"), [(STOP, 75), (KILL, -9)])
def test_a_job_ends_when_that_is_asked_and_is_cancelled(store, worker, tmp_path, request_, code):
    file = tmp_path / "file"
    (key,) = submit(store, task_record("a/b/1", "wait", file=str(file)))
    when(file.is_file, lambda: ask(store, f"{SWEEP}/{key}", request_, "enough"))
    assert worker().run() == 0
    expected = {"state": "cancelled", "reason": "enough", "code": code}
    assert state_of(store, key).items() >= expected.items()


def test_a_job_that_another_worker_has_taken_is_killed_and_nothing_more_is_written(
    store, worker, tmp_path
):
    told, file = [], tmp_path / "file"
    (key,) = submit(store, task_record("a/b/1", "wait", file=str(file)))
    when(file.is_file, lambda: take(store, key))
    assert worker(tell=told.append, wait=Wait.NO).run() == 0
    assert told[-1].startswith(f"{key} is lost: another worker has it now")
    assert state_of(store, key).items() >= {"state": "running", "worker": "another"}.items()
    assert file.read_text() != "stopped"


def test_a_signal_releases_the_jobs(store, worker, tmp_path):
    file = tmp_path / "file"
    keys = submit(store, *(task_record(f"a/b/{n}", "wait", file=f"{file}{n}") for n in range(3)))
    when(lambda: any(tmp_path.glob("file*")), press)
    assert worker(slots=1).run() == 75
    states = sorted(state_of(store, key).get("state", "") for key in keys)
    assert states == ["", "", "released"]


def test_a_second_signal_kills_and_releases_too(store, worker, tmp_path):
    file = tmp_path / "file"
    (key,) = submit(store, task_record("a/b/1", "support.jobs:ignore_stop", file=str(file)))

    def press_twice():
        press(signal.SIGINT)
        time.sleep(0.5)
        press(signal.SIGINT)

    when(file.is_file, press_twice)
    assert worker(targets=("support.jobs:ignore_stop",)).run() == 130
    assert state_of(store, key)["state"] == "released"


# What is refused.


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"job": "../../../up"}, "no run of this sweep"),
        ({"job": "a/b/../c"}, "no run of this sweep"),
        ({"job": "/etc/a/b"}, "no run of this sweep"),
        ({"job": "a/.hidden/c"}, "no name of a run"),
        ({"config": {"_target_": "os.system"}}, "damaged"),
        ({"config": None}, "no configuration"),
        ({"config": 7}, "no configuration"),
        ({"target": "os:system", "data": {}}, "no function that this worker calls"),
        ({"target": {"a": 1}, "data": {}}, "no function that this worker calls"),
        ({"job": "../x", "target": FUNCTIONS[0], "data": {}}, "no job of this sweep"),
        ({"target": FUNCTIONS[0], "data": {}, "limits": {"x": 1}}, "limits"),
    ],
)
def test_a_forged_record_is_one_line_and_the_others_are_done(
    store, worker, tmp_path, caplog, changes, text
):
    forged = {**run_record(tiny_config()), **changes}
    submit(store, forged, task_record("a/b/1", "say", word=1))
    with caplog.at_level(logging.WARNING):
        assert worker().run() == 1
    refusals = [r.getMessage() for r in caplog.records if "left to other" in r.getMessage()]
    assert len(refusals) == 1
    assert text in refusals[0]
    assert "\n" not in refusals[0]
    assert state_of(store, "a/b/1")["state"] == "finished"
    folders = {path.name for path in tmp_path.iterdir()}
    assert folders <= {"store", "here"}


def test_own_code_needs_trust(store, worker, caplog):
    submit(store, run_record(tiny_config()))
    assert worker(trust=False).run() == 1
    assert "support.tiny_envs" in caplog.text
    assert "--trust" in caplog.text


@pytest.mark.parametrize("start", ["s3://elsewhere/runs/a/b", "/home/me/outputs/secret", "latest"])
def test_a_start_from_elsewhere_needs_trust(store, worker, caplog, start):
    """Not only a URL: of a path, the policy that is there would be sent to the store."""
    config = tiny_config("ppo", "CartPole-v1", "env.packages=[]")
    submit(store, run_record(config.model_copy(update={"init_from": start})))
    assert worker(trust=False).run() == 1
    assert f"code that is not ours: init_from={start}." in caplog.text


def test_code_in_the_store_needs_trust(store, worker, caplog):
    submit(store, task_record("a/b/1", "say", word=1), run_record(tiny_config()), code="0" * 64)
    assert worker(trust=False).run() == 1
    assert "the code in the store" in caplog.text


@pytest.mark.training
def test_code_in_the_store_is_brought_and_imported_by_the_training_alone(
    store, worker, tmp_path, monkeypatch
):
    source = tmp_path / "source"
    source.mkdir()
    (source / "code_of_mine.py").write_text('print("my code, from", __file__)\n')
    monkeypatch.chdir(source)
    sha = send_code(store, SWEEP, ["code_of_mine.py"])
    monkeypatch.chdir(tmp_path)
    config = tiny_config().model_copy(update={"packages": ["code_of_mine"]})
    (key,) = submit(store, run_record(config), code=sha)
    assert worker().run() == 0
    log = (tmp_path / "here" / key / "log.txt").read_text()
    assert f"my code, from {tmp_path / 'here' / '.code' / sha}" in log
    assert "code_of_mine" not in sys.modules


def test_another_version_is_refused_unless_any_will_do(store, worker, caplog):
    (key,) = submit(store, task_record("a/b/1", "say", word=1), version="0.0.1")
    assert worker().run() == 1
    assert f"made with rlzoo_plus 0.0.1, and this is {ABOUT['version']}" in caplog.text
    assert worker(any_version=True).run() == 0
    assert state_of(store, key)["state"] == "finished"


def test_of_where_a_run_was_to_be_only_its_limits_count(store, tmp_path):
    from rlzoo_plus.config.resolve import infra_of
    from rlzoo_plus.workers.task import Rules, load_task

    stored = infra_of({"name": "slurm", "memory_gib": 3, "time_limit_minutes": 2})
    update = {"infra": stored, "store": "s3://bucket", "resume": "never", "restart": True}
    config = tiny_config().model_copy(update=update)
    record = {**run_record(config), "about": ABOUT}
    task = load_task(tmp_path, record, Rules(trust=True))
    assert (task.spec.limits.memory_gib, task.spec.limits.time_s) == (3, 120)
    trained = task.spec.data["config"]
    assert trained["infra"]["name"] == "local"
    assert trained["run_dir"] == str(tmp_path / record["job"])
    assert (trained.get("store"), trained["resume"], trained["restart"]) == (None, "auto", False)


def test_a_sweep_that_is_not_there_is_one_line(tmp_path, capsys):
    for name, text in ((tmp_path / "store" / "gone", "no sweep 'gone'"), ("gone", "STORE/SWEEP")):
        assert run_verb("worker", [str(name)]) == 2
        err = capsys.readouterr().err
        assert err.startswith("error: ")
        assert text in err
        assert err.count("\n") == 1


# Directories.


def test_the_directory_of_a_process_that_still_works_is_left_alone(store, worker, tmp_path):
    (key,) = submit(store, task_record("a/b/1", "say", word=1))
    folder = tmp_path / "here" / key
    folder.mkdir(parents=True)
    told, is_held = [], threading.Event()

    def work():
        with RunDir(folder).lock as lock:
            assert lock.acquire()
            is_held.set()
            time.sleep(1.0)
            told.append("released")

    threading.Thread(target=work, daemon=True).start()
    assert is_held.wait(10.0)
    assert worker(tell=told.append).run() == 0
    assert told[0] == "released"


@pytest.mark.slow
@pytest.mark.training
def test_a_directory_that_is_ahead_goes_on_and_one_that_was_overtaken_is_replaced(store, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    config = tiny_config("ppo", "tests/TinyReach-v0", *LONG, "checkpoint.keep=2")
    (key,) = submit(store, run_record(config, follow=True))

    def train_a_bit(folder):
        """Train up to the next checkpoint; return from where, and whether the folder stayed."""
        run, told = RunDir(folder / key), []

        def is_further():
            _, _, begun_at = told[0].partition(" goes on from step ") if told else ("",) * 3
            steps = run.checkpoints().steps() if told else []
            return steps and steps[-1] > int(begun_at.replace(",", "") or 0)

        # A hidden file is not sent.
        mark = run.path / ".mark"
        if run.path.is_dir():
            mark.touch()
        when(is_further, press)
        assert make_worker(store, folder, tell=told.append).run() == 75
        return told[0].removeprefix(f"{key} "), mark.is_file()

    assert train_a_bit(first) == ("begins", False)
    step = max(RunDir(first / key).checkpoints().steps())
    assert train_a_bit(first) == (f"goes on from step {step:,}", True)
    assert train_a_bit(second)[1] is False
    assert train_a_bit(first)[1] is False
    evaluations = state_of(store, key)["evaluations"]
    assert [e["step"] for e in evaluations] == [
        r["step"] for r in read_records(RunDir(first / key).evaluations_file)
    ]


def test_another_run_in_the_place_is_moved_aside(store, tmp_path):
    from rlzoo_plus.workers.restore import restore_run

    path = tmp_path / "here" / "a"
    path.mkdir(parents=True)
    (path / "mine.txt").write_text("mine")
    store.put(f"state/{SWEEP}/a/checkpoints.json", b"{}")
    store.put(f"runs/{SWEEP}/a/config.yaml", b"{}")
    assert restore_run(store, f"{SWEEP}/a", tmp_path / "here", path) is None
    assert not path.exists()
    (kept,) = (tmp_path / "here").glob("a-before-*/mine.txt")
    assert kept.read_text() == "mine"


# The store.


def test_a_server_without_conditions_has_one_worker_at_a_time(tmp_path, monkeypatch, caplog):
    with s3_server(monkeypatch) as url:
        store = open_store(url)
        ignore_conditions(store)
        submit(store, task_record("a/b/1", "say", word=1))
        assert make_worker(store, tmp_path / "here", targets=FUNCTIONS).run() == 0
        assert "only one worker at a time" in caplog.text
        submit(store, task_record("a/b/9", "say", word=9))
        take(store, "a/b/9")
        with pytest.raises(ConfigError, match="another one is"):
            make_worker(store, tmp_path / "here", targets=FUNCTIONS).run()


def test_the_command_has_options_and_refuses_nonsense(capsys):
    with pytest.raises(SystemExit):
        run_verb("worker", ["--slots", "0", "s3://bucket/sweep"])
    assert "number above 0" in capsys.readouterr().err
