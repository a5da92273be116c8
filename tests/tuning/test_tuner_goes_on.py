"""The tuner when it is stopped, killed, late, or called again: no trial is lost or run twice."""

import os
import signal

import pytest
from pretended import BUSY, base_fixture, finish, make_fixture, states  # noqa: F401

from rlzoo_plus.sweeps.launchers.launcher import JobEnd


def test_a_busy_run_is_waited_for(make, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.tuning.trial_run.time.monotonic", iter(range(10**6)).__next__)
    ends = iter([JobEnd(BUSY)])
    tuner = make(lambda run, data, handle: next(ends, None) or finish(run), n_trials=1)
    tuner.run()
    assert states(tuner) == ["done"]
    assert len(tuner.launcher.submitted) == 2


def test_what_was_stopped_goes_on_with_the_next_command(make):
    def stopped(run, data, handle):
        os.kill(os.getpid(), signal.SIGTERM)
        return JobEnd(75) if handle.stopped else None

    first = make(stopped, n_trials=2)
    assert first.run() == 75
    assert states(first) == ["requeued", "waiting"]
    second = make(lambda run, data, handle: finish(run), n_trials=2)
    assert second.run() == 0
    assert states(second) == ["requeued", "done", "done"]
    views = second.study.trials()
    assert views[1].folder == "trials/0000"
    assert views[1].overrides == views[0].overrides
    assert second.launcher.submitted[0].log == first.launcher.submitted[0].log


def test_a_finished_run_of_a_lost_controller_is_not_trained_again(make):
    def lost(run, data, handle):
        finish(run)
        raise KeyboardInterrupt

    first = make(lost, n_trials=1)
    with pytest.raises(KeyboardInterrupt):
        first.run()
    assert states(first) == ["running"]
    second = make(lambda run, data, handle: finish(run), n_trials=1)
    assert second.run() == 0
    assert states(second) == ["requeued", "done"]
    assert second.launcher.submitted == []
    assert second.notes == ["trial 0 was left by a dead process; it continues"]


def test_a_lost_attempt_keeps_its_values_when_the_space_has_changed(make):
    def stopped(run, data, handle):
        os.kill(os.getpid(), signal.SIGTERM)
        return JobEnd(75) if handle.stopped else None

    make(stopped, n_trials=1).run()
    space = {"algo.hyperparams.gamma": "interval(0.1, 0.2)"}
    tuner = make(lambda run, data, handle: finish(run), n_trials=1, space=space)
    tuner.run()
    before, after = tuner.study.trials()
    assert after.overrides == before.overrides
    assert after.overrides[0].startswith("algo.hyperparams.gamma=0.9")


def test_the_same_command_again_has_nothing_to_do(make):
    make(lambda run, data, handle: finish(run)).run()
    again = make(lambda run, data, handle: finish(run))
    assert again.run() == 0
    assert again.launcher.submitted == []


def test_more_trials_later_are_added(make):
    make(lambda run, data, handle: finish(run)).run()
    again = make(lambda run, data, handle: finish(run), n_trials=5)
    again.run()
    assert len(again.launcher.submitted) == 2


def test_time_that_is_over_begins_no_trial(make):
    tuner = make(lambda run, data, handle: finish(run), timeout_minutes=1e-9)
    assert tuner.run() == 1
    assert tuner.launcher.submitted == []


def stop_at(poll):
    """Return what a run does that is asked to stop at its n-th look."""

    def act(run, data, handle):
        if handle.polls == poll:
            os.kill(os.getpid(), signal.SIGTERM)
        return JobEnd(75) if handle.stopped else None

    return act


def test_a_trial_that_waits_for_a_busy_run_is_laid_down_at_a_stop(make):
    def act(run, data, handle):
        os.kill(os.getpid(), signal.SIGTERM)
        return JobEnd(BUSY)

    tuner = make(act, n_trials=1)
    assert tuner.run() == 75
    assert len(tuner.launcher.submitted) == 1
    assert states(tuner) == ["requeued", "waiting"]


def test_a_stop_while_a_trial_waits_begins_no_run(make, monkeypatch):
    tuner = make(lambda run, data, handle: JobEnd(BUSY), n_trials=1)
    looks = []

    def tick(progress):
        looks.append(progress)
        if len(looks) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    tuner._tick = tick
    assert tuner.run() == 75
    assert len(tuner.launcher.submitted) == 1
    assert states(tuner) == ["requeued", "waiting"]


def test_a_stop_at_the_end_of_a_seed_begins_no_other_seed(make):
    def act(run, data, handle):
        os.kill(os.getpid(), signal.SIGTERM)
        return finish(run)

    first = make(act, n_trials=1, seeds=2)
    assert first.run() == 75
    assert len(first.launcher.submitted) == 1
    assert states(first) == ["requeued", "waiting"]
    second = make(lambda run, data, handle: finish(run), n_trials=1, seeds=2)
    assert second.run() == 0
    assert [spec.log.parent.name for spec in second.launcher.submitted] == ["s1"]


def test_fewer_trials_later_do_not_wait_for_those_that_were_laid_down(make):
    first = make(stop_at(2), n_trials=3, slots=3)
    first.run()
    assert states(first).count("waiting") == 3
    second = make(lambda run, data, handle: finish(run), n_trials=1)
    assert second.run() == 0
    assert states(second).count("done") == 1
    assert states(second).count("waiting") == 2


def test_a_run_that_cannot_be_started_is_a_failure_and_the_study_goes_on(make):
    tuner = make(lambda run, data, handle: finish(run), n_trials=2)
    submit, calls = tuner.launcher.submit, []

    def refuse_first(spec):
        calls.append(spec)
        if len(calls) == 1:
            raise OSError("Cannot allocate memory")
        return submit(spec)

    tuner.launcher.submit = refuse_first
    assert tuner.run() == 0
    assert states(tuner) == ["failed", "done"]
    assert tuner.study.trials()[0].reason == "cannot be started: Cannot allocate memory"


def test_a_run_that_a_signal_kept_from_starting_is_left_to_the_next_command(make):
    tuner = make(lambda run, data, handle: finish(run), n_trials=1)

    def be_killed(spec):
        os.kill(os.getpid(), signal.SIGTERM)
        raise EOFError("unexpected EOF")

    tuner.launcher.submit = be_killed
    assert tuner.run() == 75
    again = make(lambda run, data, handle: finish(run), n_trials=1)
    assert again.run() == 0
    assert [state for state in states(again) if state == "failed"] == []


def test_a_trial_that_was_taken_from_us_is_not_told_as_ours(make):
    ended = []

    def act(run, data, handle):
        tuner.study.requeue_orphans(lambda owner: True)
        return finish(run)

    tuner = make(act, n_trials=1)
    tuner._ended = lambda *arguments: ended.append(arguments)
    assert tuner.run() == 0
    assert states(tuner) == ["requeued", "done"]
    assert [number for number, *_ in ended] == [1]
    assert len(tuner.launcher.submitted) == 1
    assert "trial 0 was taken up by another process" in tuner.notes[0]


def test_a_draw_that_the_users_function_prunes_is_no_trial(make, monkeypatch, tmp_path):
    import sys
    from types import SimpleNamespace

    import optuna

    def space(trial):
        if trial.number == 0:
            raise optuna.TrialPruned("too wide")
        return {}

    monkeypatch.setitem(sys.modules, "wide_spaces", SimpleNamespace(space=space))
    tuner = make(lambda run, data, handle: finish(run), n_trials=1, custom="wide_spaces.space")
    assert tuner.run() == 0
    assert states(tuner) == ["invalid", "done"]
    assert tuner.study.trials()[0].reason == "too wide"
