"""The launcher of workers: what it submits, reads of leases, and asks of workers."""

import signal
import time

import pytest
from support.pretended_worker import fail, finish, wait_for_request, worker_in_a_thread
from support.processes import wait_for

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import CANCELLED, FAILED, FINISHED, RunLease, list_leases
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Limits, make_launcher
from rlzoo_plus.testing.launcher_contract import end_of
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "shared")


@pytest.fixture
def launcher(store):
    infra = InfraConfig(name="workers", look_s=0.02)
    return make_launcher(infra, 1, (), store=store.url, sweep="mine")


@pytest.fixture
def task(tmp_path):
    return lambda **data: JobSpec("a job", "module:function", data, tmp_path / "log.txt", Limits(2))


@pytest.fixture
def run(tmp_path):
    """Return a function: a seed to the job of a run."""

    def make(seed=0):
        path = tmp_path / "sweep" / "env" / "ppo" / f"abc-s{seed}"
        config = short_config(*ON_POLICY, f"seed={seed}").model_copy(
            update={"run_dir": str(path), "sweep": str(tmp_path / "sweep"), "store": "elsewhere"}
        )
        data = {"config": config.model_dump(), "command": "train"}
        return JobSpec("a run", "module:function", data, path / "log.txt", is_run=True)

    return make


def records(store):
    return Submissions(store, "mine").records()


def lease_of(store, key):
    return store.get(f"live/mine/{key}.json", 2**16)[0].decode()


def test_a_job_is_submitted_at_once(launcher, store, task):
    handles = [launcher.submit(task(number=number)) for number in range(2)]
    assert [len(each.records) for each in Submissions(store, "mine").read()] == [1, 1]
    assert [handle.poll() for handle in handles] == [None] * 2
    first = next(iter(records(store).values()))
    assert (first["target"], first["data"]) == ("module:function", {"number": 0})
    assert first["limits"] == {"memory_gib": 2, "time_s": None}


def test_jobs_that_waited_for_the_store_are_one_submission(launcher, store, task, monkeypatch):
    monkeypatch.setattr(launcher.submitter, "submit", _away)
    handles = [launcher.submit(task(number=number)) for number in range(3)]
    monkeypatch.undo()
    wait_for(lambda: not any(handle.poll() for handle in handles) and records(store))
    assert [len(each.records) for each in Submissions(store, "mine").read()] == [3]


def test_a_run_is_named_by_its_place_and_comes_home_whole(launcher, store, run):
    spec = run()
    handle = launcher.submit(spec)
    with worker_in_a_thread(store, "mine") as taken:
        assert end_of(launcher, handle) == JobEnd(0)
    assert taken == ["env/ppo/abc-s0"]
    assert not {"store", "run_dir", "sweep"} & set(records(store)[taken[0]]["config"])
    assert RunDir(spec.log.parent).read_status()["state"] == "finished"


def test_what_a_worker_brings_replaces_the_files_here_and_nothing_else(launcher, store, run):
    spec = run()
    spec.log.parent.mkdir(parents=True)
    spec.log.write_text("earlier\n")
    (spec.log.parent / "mine.txt").write_text("kept")
    handle = launcher.submit(spec)
    with worker_in_a_thread(store, "mine", fail):
        assert end_of(launcher, handle) == JobEnd(1)
    assert spec.log.read_text() == "the gearbox broke\n"
    assert (spec.log.parent / "mine.txt").read_text() == "kept"


def test_nothing_is_brought_through_a_link(launcher, store, run, tmp_path):
    spec = run()
    spec.log.parent.mkdir(parents=True)
    (tmp_path / "elsewhere").write_text("precious")
    spec.log.symlink_to(tmp_path / "elsewhere")
    handle = launcher.submit(spec)
    with worker_in_a_thread(store, "mine", fail):
        end = end_of(launcher, handle)
    assert end.code == 1
    assert "log.txt is a link" in end.limit
    assert (tmp_path / "elsewhere").read_text() == "precious"


def test_a_run_that_comes_back_with_other_code_stays_there(launcher, store, run):
    def forge(job):
        job.config["packages"] = ["evil_module"]
        return finish(job)

    spec = run()
    handle = launcher.submit(spec)
    with worker_in_a_thread(store, "mine", forge):
        end = end_of(launcher, handle)
    assert end == JobEnd(1, "its configuration in the store names other code: evil_module")
    assert not (spec.log.parent / "config.yaml").exists()


def test_the_output_of_a_task_is_appended(launcher, store, task, tmp_path):
    with worker_in_a_thread(store, "mine", fail):
        for _ in range(2):
            assert end_of(launcher, launcher.submit(task())).code == 1
    assert (tmp_path / "log.txt").read_text() == "the gearbox broke\n" * 2


def test_a_job_that_nobody_was_told_of_is_dropped(launcher, store, task, monkeypatch):
    monkeypatch.setattr(launcher.submitter, "submit", _away)
    stopped, killed = launcher.submit(task()), launcher.submit(task())
    stopped.stop()
    killed.kill()
    assert (stopped.poll(), killed.poll()) == (JobEnd(75), JobEnd(-signal.SIGKILL))
    assert not list(store.list("submissions/"))


def test_a_job_that_nobody_has_begun_is_cancelled(launcher, store, task):
    for request, code in (("stop", 75), ("kill", -signal.SIGKILL)):
        handle = launcher.submit(task())
        handle.poll()
        getattr(handle, request)()
        assert end_of(launcher, handle) == JobEnd(code)
        assert CANCELLED in lease_of(store, handle.key)


def test_a_worker_that_is_asked_ends_with_its_own_code(launcher, store, task):
    handle = launcher.submit(task())
    with worker_in_a_thread(store, "mine", wait_for_request):
        wait_for(lambda: handle.poll() or list_leases(store, "mine"))
        handle.stop()
        assert end_of(launcher, handle) == JobEnd(75)


def test_a_job_whose_worker_died_is_cancelled_without_it(launcher, store, task, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.store.live.EXPIRES_S", 0.0)
    handle = launcher.submit(task())
    handle.poll()
    lease = RunLease(store, f"mine/{handle.key}", "a worker that dies")
    assert lease.claim(list_leases(store, "mine"))
    assert handle.poll() is None
    handle.stop()
    assert end_of(launcher, handle) == JobEnd(75)


def test_a_job_whose_worker_died_waits_for_another_one(launcher, store, task):
    handle = launcher.submit(task())
    handle.poll()
    lease = RunLease(store, f"mine/{handle.key}", "a worker")
    lease.claim(list_leases(store, "mine"))
    lease.beat("released")
    for _ in range(3):
        assert handle.poll() is None
        time.sleep(0.03)
    with worker_in_a_thread(store, "mine", fail):
        assert end_of(launcher, handle) == JobEnd(1)


@pytest.mark.parametrize(
    ("state", "record", "end"),
    [
        (FINISHED, {"code": 0}, JobEnd(0)),
        (FAILED, {"code": 73}, JobEnd(73)),
        (FAILED, {"code": -9, "limit": "used 9 GiB"}, JobEnd(-9, "used 9 GiB")),
        (FAILED, {"reason": "another version"}, JobEnd(1, "another version")),
        (FAILED, {"code": True, "limit": ["x"]}, JobEnd(1)),
        (FAILED, {"code": 1, "limit": "red \x1b[31m"}, JobEnd(1, "red \\x1b[31m")),
        (CANCELLED, {"code": 75, "reason": "enough"}, JobEnd(75, "cancelled: enough")),
        (CANCELLED, {}, JobEnd(75, "cancelled: no reason is given")),
    ],
)
def test_how_a_job_ended_is_read_from_its_lease(launcher, store, task, state, record, end):
    handle = launcher.submit(task())
    with worker_in_a_thread(store, "mine", lambda job: (state, record)):
        assert end_of(launcher, handle) == end


def test_evaluations_are_told_once_and_only_what_can_be_one(launcher, store, run):
    told = [
        [{"step": 10, "mean_return": 1.0}],
        [{"step": 10, "mean_return": 1.0}, {"step": 20.0, "mean_return": None}, {"step": "30"}, 7],
    ]
    handle = launcher.submit(run())
    handle.poll()
    lease = RunLease(store, f"mine/{handle.key}", "a worker")
    lease.claim(list_leases(store, "mine"))
    found = []
    for records_so_far in (*told, *told[1:]):
        lease.beat(steps=20, rate=5.0, evaluations=records_so_far)
        time.sleep(0.03)
        assert handle.poll() is None
        found.append([record["step"] for record in handle.evaluations()])
    assert found == [[10], [20], []]
    assert all(type(step) is int for steps in found for step in steps)
    assert (handle.progress().steps, handle.progress().rate) == (20, 5.0)


def test_a_run_that_is_ended_early_says_so(launcher, store, run):
    handle = launcher.submit(run())
    with worker_in_a_thread(store, "mine", wait_for_request):
        wait_for(lambda: handle.poll() or list_leases(store, "mine"))
        handle.end_early("median at rung 3")
        assert end_of(launcher, handle) == JobEnd(74)
    assert "median at rung 3" in lease_of(store, handle.key)


@pytest.mark.parametrize("act", [fail, wait_for_request])
def test_a_run_that_ended_too_early_is_opened_again(launcher, store, run, act):
    first = launcher.submit(run())
    with worker_in_a_thread(store, "mine", act):
        if act is wait_for_request:
            wait_for(lambda: first.poll() or list_leases(store, "mine"))
            first.stop()
        assert end_of(launcher, first).code in (1, 75)
    again = launcher.submit(run())
    with worker_in_a_thread(store, "mine"):
        assert end_of(launcher, again) == JobEnd(0)
    # It is the same job: nothing was submitted again.
    assert len(Submissions(store, "mine").read()) == 1


def test_a_store_that_is_away_is_waited_for_and_told_once(
    launcher, store, task, monkeypatch, caplog
):
    submitter = launcher.submitter
    monkeypatch.setattr(submitter, "submit", _away)
    handle = launcher.submit(task())
    for _ in range(5):
        assert handle.poll() is None
        time.sleep(0.03)
    assert caplog.text.count("no route to the bucket") == 1
    monkeypatch.undo()
    with worker_in_a_thread(store, "mine", fail):
        assert end_of(launcher, handle) == JobEnd(1)


def test_code_goes_along_once(store, tmp_path, task, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_robots").mkdir()
    (tmp_path / "my_robots" / "__init__.py").write_text("NAME = 1\n")
    infra = InfraConfig(name="workers", look_s=0.02, code=["my_robots"])
    launcher = make_launcher(infra, 1, (), store=store.url, sweep="mine")
    for _ in range(2):
        launcher.submit(task()).poll()
    (zipped,) = store.list("code/mine/")
    codes = {record["about"]["code"] for record in records(store).values()}
    assert [f"code/mine/{code}.zip" for code in codes] == [zipped.name]


def _away(*_):
    raise StoreError("no route to the bucket")
