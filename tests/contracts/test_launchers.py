"""What every launcher keeps to: ends, logs, limits, signals, and that nothing is left behind."""

import json
import os
import signal
import time

import pytest
from support.launchers import KINDS, SLOTS, end_of, is_alive, launcher_of, wait_for
from support.training import tiny_config

from rlzoo_plus.infra.job import JobSpec, Limits
from rlzoo_plus.sweeps.controller import Controller
from rlzoo_plus.sweeps.job import make_job
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.states import JobState

pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="needs sessions"),
    pytest.mark.training,
]
DATA = {"a": [1, 2.5, None, True], "ключ": {"deep": [{"x": "ü\n"}]}, "small": 1e-300, "big": 2**70}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def launcher(kind, tmp_path_factory):
    with launcher_of(kind, tmp_path_factory.mktemp(kind)) as made:
        yield made


@pytest.fixture
def beside(kind):
    """Leave out the launcher that runs jobs in the process of the test."""
    if kind == "debug":
        pytest.skip("a job of infra=debug runs in this process")


@pytest.fixture
def log(tmp_path):
    return tmp_path / "run" / "log.txt"


@pytest.fixture
def submit(launcher, log):
    handles = []

    def submit_it(function, limits=None, **data):
        target = f"support.infra_jobs:{function}"
        handles.append(
            launcher.submit(JobSpec(f"{function}, a job", target, data, log, limits or Limits()))
        )
        return handles[-1]

    yield submit_it
    for handle in handles:
        if handle.poll() is None:
            handle.kill()
            end_of(launcher, handle)


def test_the_exit_code_of_the_function_comes_back(launcher, submit):
    ends = [end_of(launcher, submit("say", word="x", code=code)) for code in (0, 1, 2, 73)]
    assert [(end.code, end.limit) for end in ends] == [(0, None), (1, None), (2, None), (73, None)]


def test_the_end_stays_what_it_was(launcher, submit):
    handle = submit("say", word="x", code=2)
    assert end_of(launcher, handle) == handle.poll() == handle.poll()
    handle.stop()
    handle.kill()
    assert handle.poll().code == 2


def test_a_job_that_raises_ends_with_1_and_shows_the_error(kind, launcher, submit, log, capfd):
    assert end_of(launcher, submit("fail")).code == 1
    text = capfd.readouterr().err if kind == "debug" else log.read_text()
    assert "RuntimeError: the gearbox broke" in text


def test_data_arrive_unchanged(launcher, submit, tmp_path):
    file = tmp_path / "arrived"
    assert end_of(launcher, submit("write_down", file=str(file), **DATA)).code == 0
    assert json.loads(file.read_text()) == {"file": str(file), **DATA}


def test_large_data_arrive(launcher, submit, tmp_path):
    file = tmp_path / "arrived"
    end_of(launcher, submit("write_down", file=str(file), text="x" * 300_000))
    assert len(json.loads(file.read_text())["text"]) == 300_000


def test_jobs_work_in_the_folder_of_the_controller(launcher, submit, log, capfd, kind):
    end_of(launcher, submit("say", word="x"))
    text = capfd.readouterr().out if kind == "debug" else log.read_text()
    assert f"at {os.getcwd()}\n" in text


def test_attempts_append_to_the_log(beside, launcher, submit, log):
    for word in ("one", "two"):
        end_of(launcher, submit("say", word=word))
    text = log.read_text()
    assert text.index("said one") < text.index("said two")
    assert text.count("complained") == 2


def test_a_job_that_kills_itself_is_told_as_killed(beside, launcher, submit):
    end = end_of(launcher, submit("kill_itself"))
    assert (end.code, end.limit) == (-signal.SIGKILL, None)


def test_a_killed_job_does_not_touch_its_neighbour(beside, launcher, submit, tmp_path):
    first, second = (submit("wait", file=str(tmp_path / name)) for name in ("first", "second"))
    wait_for(lambda: all((tmp_path / name).exists() for name in ("first", "second")))
    os.kill(_pid_in(tmp_path / "first"), signal.SIGKILL)
    assert end_of(launcher, first).code == -signal.SIGKILL
    assert second.poll() is None
    assert is_alive(_pid_in(tmp_path / "second"))


@pytest.mark.parametrize("function", ["leave_child", "wait_with_child"])
def test_what_a_job_has_started_ends_with_it(beside, launcher, submit, tmp_path, function):
    handle = submit(function, file=str(tmp_path / "child"))
    child = _pid_in(tmp_path / "child")
    if function == "wait_with_child":
        assert is_alive(child)
        handle.kill()
    end_of(launcher, handle)
    wait_for(lambda: not is_alive(child), timeout_s=10)


def test_to_stop_lets_a_job_end_with_its_own_code(beside, launcher, submit, tmp_path):
    file = tmp_path / "file"
    handle = submit("wait", file=str(file))
    wait_for(file.exists)
    handle.stop()
    end = end_of(launcher, handle)
    assert (end.code, end.limit) == (75, None)
    assert file.read_text() == "stopped"


def test_a_second_wish_to_stop_does_not_change_how_a_job_has_ended(
    beside, launcher, submit, tmp_path
):
    file = tmp_path / "file"
    handle = submit("wait_and_linger", file=str(file))
    wait_for(file.exists)
    handle.stop()
    wait_for(lambda: file.read_text() == "stopped")
    handle.stop()
    assert end_of(launcher, handle).code == 75


def test_a_job_that_is_stopped_at_once_ends_soon(beside, launcher, submit, tmp_path):
    handle = submit("wait", file=str(tmp_path / "file"))
    handle.stop()
    assert end_of(launcher, handle).code in (75, -signal.SIGTERM)


def test_a_killed_job_is_gone(beside, launcher, submit, tmp_path):
    handle = submit("wait", file=str(tmp_path / "file"))
    job = _pid_in(tmp_path / "file")
    handle.kill()
    assert end_of(launcher, handle).code == -signal.SIGKILL
    wait_for(lambda: not is_alive(job), timeout_s=10)


def test_a_job_above_its_memory_is_killed_and_says_why(beside, launcher, submit):
    end = end_of(launcher, submit("grow", Limits(memory_gib=0.25), mib=400))
    assert end.code == -signal.SIGKILL
    assert "above infra.memory_gib=0.25" in end.limit


def test_a_job_above_its_time_is_stopped_cleanly(beside, launcher, submit, tmp_path):
    end = end_of(launcher, submit("wait", Limits(time_s=2.0), file=str(tmp_path / "file")))
    assert end.code == 75
    assert end.limit == "longer than infra.time_limit_minutes=0.0333333"
    assert (tmp_path / "file").read_text() == "stopped"


def test_to_wait_ends_with_a_job_and_not_before(beside, launcher, submit, tmp_path):
    file = tmp_path / "file"
    handle = submit("wait", file=str(file))
    began = time.monotonic()
    launcher.wait([handle], 0.3)
    assert time.monotonic() - began >= 0.3
    os.kill(_pid_in(file), signal.SIGTERM)
    began = time.monotonic()
    launcher.wait([handle], 60.0)
    assert time.monotonic() - began < 5.0


def test_a_controller_keeps_to_the_slots(launcher, tmp_path):
    jobs, book = _sweep(tmp_path, 4)
    controller = Controller(book, jobs, launcher, target="support.infra_jobs:finish_slowly")
    assert controller.run() == 0
    assert all(entry.state is JobState.DONE for entry in controller.entries)
    times = [json.loads((job.path / "times.json").read_text()) for job in jobs]
    at_once = max(sum(a <= began < b for a, b in times) for began, _ in times)
    assert at_once <= launcher.slots <= SLOTS


@pytest.mark.slow
def test_a_small_sweep_trains(launcher, in_process):
    jobs, book = _sweep(in_process, 2)
    controller = Controller(book, jobs, launcher)
    assert controller.run() == 0, [entry.reason for entry in controller.entries]
    steps = [job.run_dir.read_result()["num_timesteps"] for job in jobs]
    assert steps == [job.config.n_timesteps for job in jobs]


def _sweep(folder, n):
    configs = [tiny_config("ppo", "tests/TinyReach-v0", f"seed={seed}") for seed in range(n)]
    jobs = [make_job(c.model_copy(update={"sweep": str(folder)})) for c in configs]
    book = Ledger(folder)
    book.add(jobs)
    return jobs, book


def _pid_in(file):
    wait_for(lambda: file.exists() and file.read_text())
    return int(file.read_text())
