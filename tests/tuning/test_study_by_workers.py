"""Studies whose runs workers train: evaluations and pruning go through the store."""

import os
import signal
import threading
import time

import pytest
from pretended import STEPS, base_fixture, make_fixture, states  # noqa: F401
from support.pretended_worker import fail, wait_for_request, worker_in_a_thread
from support.processes import wait_for

from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import CANCELLED, FINISHED, STOP, ask, list_leases
from rlzoo_plus.store.submissions import Submissions
from rlzoo_plus.sweeps.launchers.launcher import LauncherOptions, make_launcher
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.tuning import retraining, study
from rlzoo_plus.tuning.trials import TrialState

MEDIAN = {"pruner": "median", "pruner_options": {"n_startup_trials": 2, "n_warmup_steps": 0}}
QUARTERS = [STEPS // 4, STEPS // 2, STEPS * 3 // 4, STEPS]


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "shared")


@pytest.fixture
def launcher(store):
    infra = InfraConfig(name="workers", look_s=0.05, workers=2)
    return make_launcher(infra, 1, (), store=store.url, sweep="s")


def make_launcher_like(launcher):
    return type(launcher)(
        LauncherOptions(launcher.settings, 1, store=launcher.url, sweep=launcher.sweep)
    )


def evaluations(values):
    return [
        {"step": step, "mean_return": value} for step, value in zip(QUARTERS, values, strict=False)
    ]


def finishes(*values):
    """Return what a worker does with a run that is not pruned."""

    def act(job):
        job.write(*evaluations(values))
        job.finish()
        return FINISHED, {"code": 0}

    return act


def obedient(job):
    """Train two good runs, then bad ones that wait for what the first evaluation means."""
    assert job.record["follow"] is True
    if int(job.record["job"].split("/")[1]) < 2:
        return finishes(3.0, 3.0, 3.0, 3.0)(job)
    # As a lease has it: JSON numbers, of which none is an integer for sure.
    first = [{"step": float(QUARTERS[0]), "mean_return": 1.0}]
    job.write(*evaluations([1.0]))
    deadline = time.monotonic() + 60
    while (request := job.beat(evaluations=first)) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return CANCELLED, {"code": 75, "reason": request["reason"]}


def test_the_values_of_trials_are_those_of_their_runs(make, launcher, store):
    tuner = make(launcher=launcher)
    with worker_in_a_thread(store, "s", finishes(1.0, 2.0, 3.0, 4.0)) as taken:
        assert tuner.run() == 0
    assert states(tuner) == ["done"] * 3
    assert sorted(taken) == [f"trials/000{number}/s0" for number in range(3)]
    view = tuner.study.trials()[0]
    assert view.values == (3.0,)
    # A run that ends between two looks is reported nevertheless.
    assert view.intermediate == {5: 1.0, 10: 2.0, 15: 3.0, 20: 4.0}


def test_a_bad_trial_is_pruned_and_its_worker_stops_early(make, launcher, store):
    launcher.slots = 1
    tuner = make(launcher=launcher, **MEDIAN)
    with worker_in_a_thread(store, "s", obedient):
        assert tuner.run() == 0
    assert states(tuner) == ["done", "done", "pruned"]
    view = tuner.study.trials()[2]
    assert view.reason.startswith("median at rung 5 of 20")
    assert view.metrics["final_return"] == 1.0
    record = store.get("live/s/trials/0002/s0.json", 2**16)[0].decode()
    assert "median at rung 5" in record
    assert CANCELLED in record


def test_a_pruned_run_goes_on_for_the_next_controller_until_it_is_asked_again(
    make, launcher, store
):
    launcher.slots = 1
    tuner = make(launcher=launcher, **MEDIAN)
    with worker_in_a_thread(store, "s", obedient) as taken:
        ended = tuner.study.prune
        # The controller dies after the worker has stopped, before that is in the study.
        tuner.study.prune = None
        with pytest.raises(TypeError):
            tuner.run()
        tuner.study.prune = ended
        again = make(launcher=make_launcher_like(launcher), **MEDIAN)
        assert again.run() == 0
    assert states(again) == ["done", "done", "requeued", "pruned"]
    assert taken.count("trials/0002/s0") == 2


def test_a_run_that_was_finished_for_a_dead_controller_is_not_trained_again(
    make, launcher, store, tmp_path
):
    tuner = make(launcher=launcher, n_trials=1)
    asked = tuner.study.ask("a dead controller")
    overrides = tuner.study.draw(asked, tuner.plan.draw)
    tuner.study.set_overrides(asked.number, overrides)
    config = tuner.plan.trial_config(overrides, asked.folder).model_dump()
    from rlzoo_plus.sweeps.launchers.submitter import Submitter, run_record

    record = run_record("trials/0000/s0", config, "as it was")
    Submitter(store, "s").submit([{**record, "follow": True}])
    with worker_in_a_thread(store, "s", finishes(1.0, 2.0, 3.0, 4.0)) as taken:
        tuner.study.requeue_orphans(lambda owner: True)
        assert tuner.run() == 0
    assert taken == ["trials/0000/s0"]
    done = [view for view in tuner.study.trials() if view.state is TrialState.DONE]
    assert [view.values for view in done] == [(3.0,)]


def test_ctrl_c_stops_the_trials_and_the_next_command_goes_on(make, launcher, store):
    before = signal.getsignal(signal.SIGINT)

    def interrupt():
        wait_for(lambda: list_leases(store, "s") and signal.getsignal(signal.SIGINT) is not before)
        os.kill(os.getpid(), signal.SIGINT)

    tuner = make(launcher=launcher, n_trials=1)
    thread = threading.Thread(target=interrupt)
    thread.start()
    with worker_in_a_thread(store, "s", wait_for_request):
        assert tuner.run() == 130
    thread.join()
    assert states(tuner) == ["requeued", "waiting"]
    assert "stopped by its command" in store.get("live/s/trials/0000/s0.json", 2**16)[0].decode()
    again = make(launcher=make_launcher_like(launcher), n_trials=1)
    with worker_in_a_thread(store, "s", finishes(1.0, 2.0, 3.0, 4.0)) as taken:
        assert again.run() == 0
    assert taken == ["trials/0000/s0"]
    assert states(again) == ["requeued", "done"]


def test_a_failed_run_fails_its_trial(make, launcher, store):
    tuner = make(launcher=launcher, n_trials=1)
    with worker_in_a_thread(store, "s", fail):
        assert tuner.run() == 1
    assert [view.reason for view in tuner.study.trials()] == ["exit code 1: the gearbox broke"]


def test_a_run_that_somebody_cancels_fails_its_trial(make, launcher, store):
    def cancelled(job):
        ask(store, job.lease.name.removeprefix("live/").removesuffix(".json"), STOP, "not today")
        while job.beat() is None:
            pass
        return CANCELLED, {"code": 75, "reason": "not today"}

    tuner = make(launcher=launcher, n_trials=1)
    with worker_in_a_thread(store, "s", cancelled):
        tuner.run()
    assert [view.reason for view in tuner.study.trials()] == ["cancelled: not today"]


def test_a_study_needs_its_command_and_a_name_of_its_own(make, store):
    tuner = make()
    plan, opened = tuner.plan, tuner.study
    quick = make_launcher(InfraConfig(name="workers", wait=False), 1, (), store=store.url)
    with pytest.raises(ConfigError, match=r"infra\.wait=false: a study needs its command"):
        study._of_workers(quick, plan, opened)
    Submissions(store, "s").add([{"event": "added", "job": "trials/0000/s0"}], {})
    other = make_launcher(InfraConfig(name="workers"), 1, (), store=store.url, sweep="s")
    with pytest.raises(ConfigError, match="jobs of another sweep or study of that name"):
        study._of_workers(other, plan, opened)


def test_the_last_evaluation_plays_here(launcher, store, tmp_path, monkeypatch):
    used, brought = [], []
    monkeypatch.setattr(retraining, "run_together", lambda made, specs: used.append(made))
    monkeypatch.setattr(launcher, "bring", lambda key, *_: brought.append(key))
    from test_retraining import job_in

    job = job_in(tmp_path)
    retraining.examine(job, 5, launcher)
    assert isinstance(used[0], LocalLauncher)
    assert brought == [job.key]
