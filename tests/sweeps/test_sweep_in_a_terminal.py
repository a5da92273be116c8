"""Ctrl-C in the terminal of a sweep: the first stops it cleanly, the second at once."""

import contextlib
import os
import signal
import subprocess

import pytest
from support.processes import PLUS, is_gone, wait_for
from support.terminals import CTRL_C, terminals_in

from rlzoo_plus.artifacts.run_dir import RunDir

TWO_JOBS = [
    *PLUS, "train", "-m", "env.id=tests/TinyReach-v0", "env.packages=[support.tiny_envs]",
    "tuned=none", "network.net_arch=[8]", "eval.episodes=2", "device=cpu", "log.tensorboard=false",
    "report.plot=false", "infra.workers=2", "seed=0,1", "algo.hyperparams.batch_size=16",
]  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture
def terminal(tmp_path):
    """Return a function that opens a terminal in the test's folder with a command in it."""
    with terminals_in(tmp_path) as open_it:
        yield open_it


@pytest.fixture
def runs(tmp_path):
    """Return a function to the runs that the sweep has begun."""
    root = tmp_path / "outputs" / "sweeps" / "default"

    def begun():
        return [RunDir(file.parent) for file in sorted(root.glob("*/*/*/status.json"))]

    yield begun
    # Jobs have sessions of their own: they would outlive the terminal of a test that fails.
    for run in begun():
        if run.lock.is_held_elsewhere():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(run.read_status()["pid"], signal.SIGKILL)


def test_a_ctrl_c_stops_the_jobs_with_checkpoints_and_the_same_command_finishes(terminal, runs):
    words = ["algo.hyperparams.n_steps=32", "n_timesteps=3200", "checkpoint.every_steps=64"]
    command = [*TWO_JOBS, *words]
    first = terminal(*command)
    wait_for(lambda: sum(bool(run.checkpoints().steps()) for run in runs()) == 2, first.process)
    first.press(CTRL_C)
    assert first.wait() == 130, first.text
    assert "Traceback" not in first.text
    assert "-m rlzoo_plus sweep resume outputs/sweeps/default" in first.text  # as it was started
    before = {run.path: run.checkpoints().steps()[-1] for run in runs()}
    for run in runs():
        assert run.read_status()["state"] == "interrupted"
        assert run.read_status()["num_timesteps"] == before[run.path] < 3200
    second = terminal(*command)
    assert second.wait() == 0, second.text
    assert before.keys() == {run.path for run in runs()}
    for run in runs():
        assert run.read_result()["num_timesteps"] == 3200
        assert run.read_result()["resumed_at"] == [before[run.path]]


def has_played(run):
    """Tell whether an episode stands below the two lines that each file begins with."""
    return any(file.read_text().count("\n") > 2 for file in run.path.glob("monitor/*"))


def test_a_second_ctrl_c_does_not_wait_for_the_next_iteration(terminal, runs):
    # One iteration takes minutes.
    command = [*TWO_JOBS, "algo.hyperparams.n_steps=200000", "n_timesteps=200000"]
    sweep = terminal(*command)
    wait_for(lambda: sum(map(has_played, runs())) == 2, sweep.process)
    workers = [run.read_status()["pid"] for run in runs()]
    sweep.press(CTRL_C)
    with pytest.raises(subprocess.TimeoutExpired):
        sweep.wait(timeout_s=2.0)
    assert not any(is_gone(pid) for pid in workers)
    sweep.press(CTRL_C)
    assert sweep.wait(timeout_s=10.0) == 130, sweep.text
    assert "Traceback" not in sweep.text
    assert all(is_gone(pid) for pid in workers)
    assert [run.checkpoints().steps() for run in runs()] == [[], []]
