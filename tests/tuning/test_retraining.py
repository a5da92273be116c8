"""The examination of a study's winner: what a stop and a failure leave."""

import os
import signal

import pytest
from pretended import Launcher
from support.training import make_config

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.sweeps.launchers.scheduler import JobsStopped
from rlzoo_plus.sweeps.sweep_job import SweepJob
from rlzoo_plus.tuning.retraining import EXAMINED, examine


def job_in(path):
    return SweepJob(path, path, make_config("algo=ppo", "env=pendulum", "tuned=none"), "")


def played(path, episodes):
    returns = [1.0] * episodes
    write_json(path / EXAMINED, {"mean_return": 1.0, "std_return": 0.0, "returns": returns})
    return JobEnd(0)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 75)])
def test_a_signal_ends_the_examination_and_its_process(tmp_path, number, code):
    before = signal.getsignal(number)
    killed = []

    def act(run, data, handle):
        handle.kill = lambda: killed.append(handle)
        os.kill(os.getpid(), number)

    launcher = Launcher(act)
    with pytest.raises(JobsStopped) as stopped:
        examine(job_in(tmp_path), 5, launcher)
    assert stopped.value.code == code
    assert len(killed) == 1
    assert signal.getsignal(number) is before


def test_a_winner_is_examined_once_for_each_number_of_episodes(tmp_path):
    job = job_in(tmp_path)
    first = Launcher(lambda run, data, handle: played(tmp_path, 5))
    assert examine(job, 5, first).episodes == 5
    assert examine(job, 5, first).episodes == 5
    assert len(first.submitted) == 1
    assert examine(job, 8, Launcher(lambda run, data, handle: played(tmp_path, 8))).episodes == 8


def test_an_examination_that_fails_has_no_figure(tmp_path):
    assert examine(job_in(tmp_path), 5, Launcher(lambda run, data, handle: JobEnd(1))) is None
