"""The tuner: what it makes of each way in which a trial's run can end."""

import math
from dataclasses import replace

import pytest
from pretended import KILLED, PRUNED, STEPS, base_fixture, crash, finish, make_fixture, states  # noqa: F401

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import INTERRUPTED
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.tuning.study_plan import about_study
from rlzoo_plus.tuning.trials import TrialState
from rlzoo_plus.tuning.tuner import MOST_IN_A_ROW


def test_a_finished_run_tells_its_metrics(make):
    tuner = make(lambda run, data, handle: finish(run))
    assert tuner.run() == 0
    assert states(tuner) == ["done"] * 3
    view = tuner.study.trials()[0]
    assert view.values == (2.0,)
    assert view.metrics["final_return"] == 3.0
    assert view.overrides[0].startswith("algo.hyperparams.gamma=0.9")
    assert view.folder == "trials/0000"


def test_each_free_place_takes_a_trial(make):
    def act(run, data, handle):
        return finish(run) if handle.polls > 2 else None

    tuner = make(act, slots=2, n_trials=4)
    tuner.run()
    assert tuner.launcher.most == 2
    assert states(tuner) == ["done"] * 4


def test_a_killed_run_is_the_same_trial_again(make):
    ends = iter([JobEnd(KILLED), JobEnd(KILLED)])
    tuner = make(lambda run, data, handle: next(ends, None) or finish(run), n_trials=1)
    assert tuner.run() == 0
    assert states(tuner) == ["done"]
    logs = {spec.log for spec in tuner.launcher.submitted}
    assert (len(tuner.launcher.submitted), len(logs)) == (3, 1)


def test_a_run_that_is_killed_each_time_fails(make):
    tuner = make(lambda run, data, handle: JobEnd(KILLED), n_trials=1, retries=1)
    assert tuner.run() == 1
    view = tuner.study.trials()[0]
    assert view.state is TrialState.FAILED
    assert view.reason == "killed by SIGKILL, 2 times"


def test_a_limit_is_a_failure_that_is_not_tried_again(make):
    tuner = make(lambda run, data, handle: JobEnd(KILLED, "used 9 GiB"), n_trials=1)
    tuner.run()
    assert [view.reason for view in tuner.study.trials()] == ["used 9 GiB"]


def test_a_pruned_run_prunes_the_trial_with_its_reason(make):
    def act(run, data, handle):
        run.write_status(INTERRUPTED, n_timesteps=STEPS, message="median at rung 5")
        append_records(run.evaluations_file, [{"step": 250, "mean_return": 1.5}])
        return JobEnd(PRUNED)

    tuner = make(act, n_trials=1)
    tuner.run()
    (view,) = tuner.study.trials()
    assert (view.state, view.reason) == (TrialState.PRUNED, "median at rung 5")
    assert view.metrics["final_return"] == 1.5


@pytest.mark.parametrize("how", ["crash", "metrics"])
def test_a_run_that_diverges_teaches_the_sampler(make, how):
    def act(run, data, handle):
        if how == "metrics":
            return finish(run, [1.0, math.nan])
        return crash(run, "ValueError: Expected parameter loc, but found tensor([[nan]])")

    tuner = make(act, n_trials=1)
    tuner.run()
    (view,) = tuner.study.trials()
    assert view.state is TrialState.PRUNED
    assert "diverged" in view.reason


def test_another_crash_is_a_failure_and_the_study_goes_on(make):
    ends = iter([lambda run: crash(run, "RuntimeError: gearbox"), finish, finish])
    tuner = make(lambda run, data, handle: next(ends)(run))
    assert tuner.run() == 0
    assert states(tuner) == ["failed", "done", "done"]
    assert "gearbox" in tuner.study.trials()[0].reason


def test_a_study_whose_first_trials_all_fail_ends_with_the_reason(make):
    tuner = make(lambda run, data, handle: crash(run, "RuntimeError: gearbox"), n_trials=50)
    with pytest.raises(ConfigError, match=r"the first 5 trials failed.*gearbox"):
        tuner.run()


def test_draws_that_are_no_configuration_do_not_count(make, base):
    calls = []

    def compose(overrides):
        calls.append(overrides)
        if len(calls) == 1:
            raise ConfigError("these do not go together.")
        return base

    tuner = make(lambda run, data, handle: finish(run), compose)
    tuner.run()
    assert states(tuner) == ["invalid", "done", "done", "done"]


def test_a_space_that_gives_nothing_is_a_mistake(make):
    def compose(overrides):
        raise ConfigError("these do not go together.")

    tuner = make(lambda run, data, handle: finish(run), compose)
    with pytest.raises(ConfigError, match=f"{MOST_IN_A_ROW} draws in a row.*these do not"):
        tuner.run()


def test_seeds_are_trained_one_after_the_other_and_averaged(make):
    def act(run, data, handle):
        return finish(run, [float(data["config"]["seed"])])

    tuner = make(act, n_trials=1, seeds=3)
    tuner.run()
    (view,) = tuner.study.trials()
    assert view.values == (1.0,)
    specs = tuner.launcher.submitted
    assert [spec.data["config"]["seed"] for spec in specs] == [0, 1, 2]
    assert [spec.log.parent.name for spec in specs] == ["s0", "s1", "s2"]
    assert [len(spec.data["report"]["earlier"]) for spec in specs] == [0, 1, 2]


def test_a_trial_can_be_pruned_between_its_seeds(make):
    def act(run, data, handle):
        good = "trials/0003" not in str(run.path)
        return finish(run, [10.0 if good else 1.0])

    options = {"n_startup_trials": 1, "n_warmup_steps": 0}
    tuner = make(act, n_trials=4, seeds=2, pruner_options=options)
    tuner.run()
    assert states(tuner) == ["done", "done", "done", "pruned"]
    assert [p.name for p in sorted((tuner.plan.folder / "trials/0003").iterdir())] == ["s0"]


def test_several_objectives_are_told_in_their_order(make):
    objectives = {"steps_per_s": "maximize", "final_return": "maximize"}
    tuner = make(lambda run, data, handle: finish(run), n_trials=1, objectives=objectives)
    tuner.run()
    assert tuner.study.trials()[0].values == (1000.0, 3.0)


def test_an_objective_that_no_run_tells_ends_the_study_at_once(make):
    objectives = {"success_rate": "maximize"}
    tuner = make(lambda run, data, handle: finish(run), objectives=objectives)
    with pytest.raises(ConfigError, match=r"hpo\.objectives: the runs have no success_rate"):
        tuner.run()
    assert states(tuner) == ["failed"]
    assert tuner.study.trials()[0].reason == "the runs have no success_rate"


@pytest.mark.parametrize(("keep", "left"), [("all", 3), ("best", 1), ("none", 0)])
def test_artifacts_stay_where_they_are_wanted(make, keep, left):
    def act(run, data, handle):
        run.best.mkdir(parents=True)
        return finish(run, [float(run.path.parent.name)])

    retrain = {"best": 1, "seeds": 1, "episodes": 1}
    tuner = make(act, keep=keep, retrain=retrain)
    tuner.run()
    trials = tuner.plan.folder / "trials"
    assert len(list(trials.glob("*/s0/best"))) == left
    assert len(list(trials.glob("*/s0/result.json"))) == 3


def test_a_trial_is_what_train_would_make(make, base):
    tuner = make(lambda run, data, handle: finish(run), n_trials=1)
    tuner.run()
    found = tuner.launcher.submitted[0].data["config"]
    wanted = replace_placement(base).model_dump(mode="json")
    placed = ("run_dir", "report", "num_threads")
    assert {k: v for k, v in found.items() if k not in placed} == {
        k: v for k, v in wanted.items() if k not in placed
    }


def replace_placement(config):
    return config.model_copy(update={"sweep": None, "tracker": None})


def test_plans_can_be_changed_without_a_trace(make):
    tuner = make(lambda run, data, handle: finish(run))
    longer = replace(tuner.plan, fixed=("env=cartpole_bullet", "infra.workers=7"))
    assert about_study(longer) == about_study(tuner.plan)
    other = replace(tuner.plan, fixed=("env=cartpole_bullet", "n_envs=2"))
    assert about_study(other) != about_study(tuner.plan)


def test_a_warm_start_is_exactly_what_train_takes(make):
    tuner = make(lambda run, data, handle: finish(run), n_trials=2)
    tuner.study.enqueue({"algo.hyperparams.gamma": 0.99})
    tuner.run()
    first, second = tuner.study.trials()
    assert first.params == {"algo.hyperparams.gamma": 0.99}
    assert first.overrides == ()
    assert second.overrides


def test_other_choices_than_at_the_beginning_are_a_mistake(make):
    space = {"algo.hyperparams.n_epochs": "choice(1, 2)"}
    make(lambda run, data, handle: finish(run), n_trials=1, space=space).run()
    space = {"algo.hyperparams.n_epochs": "choice(1, 2, 3)"}
    other = make(lambda run, data, handle: finish(run), n_trials=2, space=space)
    with pytest.raises(ConfigError, match="no longer what the study was begun with"):
        other.run()
    assert states(other) == ["done", "invalid"]
