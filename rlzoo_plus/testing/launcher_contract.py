"""The contract of every launcher: exit codes, logs, limits, signals, no process left behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlzoo_plus.sweeps.controller import Controller
from rlzoo_plus.sweeps.launchers.launcher import Handle, JobEnd, JobSpec, Launcher, Limits
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.states import JobState
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.testing.run_contract import ON_POLICY, short_config

DATA = {"a": [1, 2.5, None, True], "ключ": {"deep": [{"x": "ü\n"}]}, "small": 1e-300, "big": 2**70}
JOBS = "rlzoo_plus.testing.jobs:"
Submit = Callable[..., Handle]


class LauncherContract:
    """The suite for launchers; the fixture `launcher` returns one with two slots on this machine.

    A launcher that shows the output of its jobs runs them in the process of the test; tests that
    need a second process are skipped.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def launcher(cls) -> Iterator[Launcher]:
        """Return the launcher."""
        raise NotImplementedError("give the suite a fixture `launcher`")

    @pytest.fixture
    def beside(self, launcher: Launcher) -> None:
        """Skip a launcher that runs jobs in the process of the test."""
        if launcher.shows_output:
            pytest.skip("its jobs run in this process")

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """Return the file that jobs write to."""
        return tmp_path / "run" / "log.txt"

    @pytest.fixture
    def workplace(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """Work in a folder of the test, and restore the logging after it."""
        root, own = logging.getLogger(), logging.getLogger("rlzoo_plus")
        handlers, levels = list(root.handlers), (root.level, own.level)
        monkeypatch.chdir(tmp_path)
        yield tmp_path
        logging.captureWarnings(False)
        root.handlers[:] = handlers
        root.setLevel(levels[0])
        own.setLevel(levels[1])

    @pytest.fixture
    def submit(self, launcher: Launcher, log: Path) -> Iterator[Submit]:
        """Return a function that starts a job of `rlzoo_plus.testing.jobs`."""
        handles: list[Handle] = []

        def submit_it(function: str, limits: Limits | None = None, **data: Any) -> Handle:
            name, target = f"{function}, a job", JOBS + function
            spec = JobSpec(name, target, data, log, limits or Limits())
            handles.append(launcher.submit(spec))
            return handles[-1]

        yield submit_it
        for handle in handles:
            if handle.poll() is None:
                handle.kill()
                end_of(launcher, handle)

    def test_the_exit_code_of_the_function_comes_back(
        self, launcher: Launcher, submit: Submit
    ) -> None:
        for code in (0, 1, 2, 73):
            assert end_of(launcher, submit("say", word="x", code=code)) == JobEnd(code)

    def test_the_end_stays_what_it_was(self, launcher: Launcher, submit: Submit) -> None:
        handle = submit("say", word="x", code=2)
        assert end_of(launcher, handle) == handle.poll() == handle.poll()
        handle.stop()
        handle.kill()
        assert end_of(launcher, handle).code == 2

    def test_a_job_that_raises_ends_with_1_and_shows_the_error(
        self, launcher: Launcher, submit: Submit, log: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert end_of(launcher, submit("fail")).code == 1
        text = capfd.readouterr().err if launcher.shows_output else log.read_text()
        assert "RuntimeError: the gearbox broke" in text

    def test_data_arrive_unchanged(
        self, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        file = tmp_path / "arrived"
        assert end_of(launcher, submit("write_down", file=str(file), **DATA)).code == 0
        assert json.loads(file.read_text()) == {"file": str(file), **DATA}

    def test_large_data_arrive(self, launcher: Launcher, submit: Submit, tmp_path: Path) -> None:
        file = tmp_path / "arrived"
        end_of(launcher, submit("write_down", file=str(file), text="x" * 300_000))
        assert len(json.loads(file.read_text())["text"]) == 300_000

    def test_jobs_work_in_the_folder_of_the_controller(
        self, launcher: Launcher, submit: Submit, log: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        end_of(launcher, submit("say", word="x"))
        text = capfd.readouterr().out if launcher.shows_output else log.read_text()
        assert f"at {os.getcwd()}\n" in text

    def test_attempts_append_to_the_log(
        self, beside: None, launcher: Launcher, submit: Submit, log: Path
    ) -> None:
        for word in ("one", "two"):
            end_of(launcher, submit("say", word=word))
        text = log.read_text()
        assert text.index("said one") < text.index("said two")
        assert text.count("complained") == 2

    def test_a_job_that_kills_itself_is_told_as_killed(
        self, beside: None, launcher: Launcher, submit: Submit
    ) -> None:
        assert end_of(launcher, submit("kill_itself")) == JobEnd(-signal.SIGKILL)

    def test_a_killed_job_does_not_touch_its_neighbour(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        first, second = (submit("wait", file=str(tmp_path / name)) for name in ("first", "second"))
        wait_for(lambda: all((tmp_path / name).exists() for name in ("first", "second")))
        os.kill(_pid_in(tmp_path / "first"), signal.SIGKILL)
        assert end_of(launcher, first).code == -signal.SIGKILL
        assert second.poll() is None
        assert is_alive(_pid_in(tmp_path / "second"))

    @pytest.mark.parametrize("function", ["leave_child", "wait_with_child"])
    def test_what_a_job_has_started_ends_with_it(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path, function: str
    ) -> None:
        handle = submit(function, file=str(tmp_path / "child"))
        child = _pid_in(tmp_path / "child")
        if function == "wait_with_child":
            assert is_alive(child)
            handle.kill()
        end_of(launcher, handle)
        wait_for(lambda: not is_alive(child), timeout_s=10)

    def test_to_stop_lets_a_job_end_with_its_own_code(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        handle = submit("wait", file=str(file))
        wait_for(file.exists)
        handle.stop()
        assert end_of(launcher, handle) == JobEnd(75)
        assert file.read_text() == "stopped"

    def test_a_second_wish_to_stop_does_not_change_how_a_job_has_ended(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        handle = submit("wait_and_linger", file=str(file))
        wait_for(file.exists)
        handle.stop()
        wait_for(lambda: file.read_text() == "stopped")
        handle.stop()
        assert end_of(launcher, handle).code == 75

    def test_a_job_that_is_stopped_at_once_ends_soon(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        handle = submit("wait", file=str(tmp_path / "file"))
        handle.stop()
        assert end_of(launcher, handle).code in (75, -signal.SIGTERM)

    def test_a_killed_job_is_gone(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        handle = submit("wait", file=str(tmp_path / "file"))
        job = _pid_in(tmp_path / "file")
        handle.kill()
        assert end_of(launcher, handle).code == -signal.SIGKILL
        wait_for(lambda: not is_alive(job), timeout_s=10)

    def test_a_job_above_its_memory_is_killed_and_says_why(
        self, beside: None, launcher: Launcher, submit: Submit
    ) -> None:
        end = end_of(launcher, submit("grow", Limits(memory_gib=0.25), mib=400))
        assert end.code == -signal.SIGKILL
        assert "above infra.memory_gib=0.25" in str(end.limit)

    def test_a_job_above_its_time_is_stopped_cleanly(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        # On a busy machine the limit may come before the job has begun: then with more time.
        for time_s in (4.8, 30.0):
            file = tmp_path / f"file-{time_s}"
            end = end_of(launcher, submit("wait", Limits(time_s=time_s), file=str(file)))
            if file.exists():
                break
        assert end.code == 75
        assert end.limit == f"longer than infra.time_limit_minutes={time_s / 60:g}"
        assert file.read_text() == "stopped"

    def test_to_wait_ends_with_a_job_and_not_before(
        self, beside: None, launcher: Launcher, submit: Submit, tmp_path: Path
    ) -> None:
        file = tmp_path / "file"
        handle = submit("wait", file=str(file))
        began = time.monotonic()
        launcher.wait([handle], 0.3)
        assert time.monotonic() - began >= 0.3
        os.kill(_pid_in(file), signal.SIGKILL)
        began = time.monotonic()
        launcher.wait([handle], 60.0)
        assert time.monotonic() - began < 5.0

    def test_a_controller_keeps_to_the_slots(self, launcher: Launcher, tmp_path: Path) -> None:
        jobs, ledger = _sweep(tmp_path, 4)
        controller = Controller(ledger, jobs, launcher, target=JOBS + "finish_slowly")
        assert controller.run() == 0
        assert all(entry.state is JobState.DONE for entry in controller.entries)
        times = [json.loads((job.path / "times.json").read_text()) for job in jobs]
        at_once = max(sum(a <= began < b for a, b in times) for began, _ in times)
        assert at_once <= launcher.slots

    def test_a_small_sweep_trains(self, launcher: Launcher, workplace: Path) -> None:
        jobs, ledger = _sweep(workplace, 2)
        controller = Controller(ledger, jobs, launcher)
        assert controller.run() == 0, [entry.reason for entry in controller.entries]
        steps = [job.run_dir.read_result()["num_timesteps"] for job in jobs]
        assert steps == [job.config.n_timesteps for job in jobs]


def end_of(launcher: Launcher, handle: Handle, timeout_s: float = 60.0) -> JobEnd:
    """Wait for the end of a job, as a controller does."""
    deadline = time.monotonic() + timeout_s
    while (end := handle.poll()) is None:
        assert time.monotonic() < deadline
        launcher.wait([handle], 0.2)
    return end


def wait_for(condition: Callable[[], Any], timeout_s: float = 60.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _sweep(folder: Path, n: int) -> tuple[list[Any], Ledger]:
    configs = [short_config(*ON_POLICY, f"seed={seed}") for seed in range(n)]
    jobs = [make_job(c.model_copy(update={"sweep": str(folder)})) for c in configs]
    ledger = Ledger(folder)
    ledger.add(jobs)
    return jobs, ledger


def _pid_in(file: Path) -> int:
    wait_for(lambda: file.exists() and file.read_text())
    return int(file.read_text())
