"""A tuner whose runs only pretend, for tests of what it makes of each way in which one can end."""

import signal

import pytest
from support.studies import settings

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import FAILED, FINISHED, RunDir
from rlzoo_plus.runs.load import load
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.tuning.space import Space
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.study_plan import StudyPlan, about_study
from rlzoo_plus.tuning.tuner import Tuner

STEPS = 1000
KILLED, BUSY, PRUNED = -signal.SIGKILL, 73, 74


class Handle:
    def __init__(self, act):
        self.act, self.end, self.stopped, self.polls = act, None, 0, 0

    def poll(self):
        self.polls += 1
        if self.end is None:
            self.end = self.act(self)
        return self.end

    def stop(self):
        self.stopped += 1

    def kill(self):
        self.end = JobEnd(KILLED)


class Launcher:
    """Runs jobs by a function: the run's directory, its data and its handle to how it ended."""

    shows_output = False

    def __init__(self, act, slots=1):
        self.act, self.slots, self.submitted, self.most = act, slots, [], 0

    def submit(self, spec):
        self.submitted.append(spec)
        run = RunDir(spec.log.parent)
        return Handle(lambda handle: self.act(run, spec.data, handle))

    def wait(self, handles, timeout_s):
        self.most = max(self.most, len(handles))


def finish(run, returns=(1.0, 2.0, 3.0)):
    """Leave what a finished training leaves."""
    records = [
        {"step": STEPS * (n + 1) // len(returns), "mean_return": value, "success_rate": None}
        for n, value in enumerate(returns)
    ]
    append_records(run.evaluations_file, records)
    run.write_result({"num_timesteps": STEPS, "training_time_s": 1.0})
    run.write_status(FINISHED, n_timesteps=STEPS)
    return JobEnd(0)


def crash(run, message):
    run.write_status(FAILED, n_timesteps=STEPS, message=message)
    return JobEnd(1)


@pytest.fixture(scope="module", name="base")
def base_fixture():
    small = ["algo.hyperparams.n_steps=50", "algo.hyperparams.batch_size=50"]
    return load(["env=cartpole_bullet", f"n_timesteps={STEPS}", "tuned=none", *small])


@pytest.fixture(name="make")
def make_fixture(base, tmp_path):
    """Return a function: what a run does, and settings, to a tuner."""

    def make_tuner(act=None, compose=lambda overrides: base, slots=1, launcher=None, **changes):
        hpo = settings(**{"n_trials": 3, "sampler": "random", "warm_start": False, **changes})
        plan = StudyPlan(
            name="s",
            folder=tmp_path / "s",
            hpo=hpo,
            space=Space.parse(hpo.space, hpo.custom),
            fixed=("env=cartpole_bullet",),
            base=base,
            trial_base=base,
            compose=compose,
        )
        plan.folder.mkdir(exist_ok=True)
        study = Study.open("s", plan.folder, hpo, about_study(plan))
        return Tuner(plan, study, launcher or Launcher(act, slots))

    return make_tuner


def states(tuner):
    return [str(view.state) for view in tuner.study.trials()]
