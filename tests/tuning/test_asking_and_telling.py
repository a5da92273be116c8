"""The contract of a study, for both kinds of storage: no trial is lost, none is doubled."""

import math

import pytest
from optuna.trial import TrialState as OptunaState
from optuna.trial import create_trial

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.trial_reporter import TrialReporter
from rlzoo_plus.tuning.trials import COUNTED, TrialState

ALIVE = {"one": False, "two": False}


def draw(asked):
    return asked.trial.suggest_float("x", 0, 1)


def run_one(study, owner="one", value=None):
    asked = study.ask(owner)
    x = draw(asked)
    assert study.done(asked.number, [x if value is None else value], {"late_return": x})
    return asked


def states(study):
    return [view.state for view in study.trials()]


def test_a_study_gives_as_many_trials_as_it_may_and_then_none(open_study):
    study = open_study(n_trials=3)
    for number in range(3):
        asked = run_one(study)
        assert (asked.number, asked.folder) == (number, f"trials/{number:04d}")
    assert study.ask("one") is None
    assert open_study(n_trials=4).ask("one").number == 3


def test_what_was_told_is_read_back(open_study):
    study = open_study(constraints=["steps_per_s >= 100", "training_time_s <= 10"])
    asked = study.ask("one")
    x = draw(asked)
    assert study.set_overrides(asked.number, ["gamma=0.9"])
    assert study.reporter(asked.number).report(2.0, 4) is None
    metrics = {"steps_per_s": 40.0, "training_time_s": 4.0, "late_return": math.nan}
    assert study.done(asked.number, [7.0], metrics)
    (view,) = open_study(constraints=["steps_per_s >= 100", "training_time_s <= 10"]).trials()
    assert (view.state, view.values, view.owner) == (TrialState.DONE, (7.0,), "one")
    assert (view.params, view.overrides) == ({"x": x}, ("gamma=0.9",))
    assert view.metrics == {"steps_per_s": 40.0, "training_time_s": 4.0}
    assert (view.intermediate, view.violations) == ({4: 2.0}, (60.0, -6.0))
    assert not view.is_feasible
    assert view.duration_s >= 0


def test_a_study_that_is_about_something_else_is_refused(open_study):
    open_study(about={"base": ["env=a"], "seeds": 1})
    open_study(about={"base": ["env=a"], "seeds": 1})
    with pytest.raises(ConfigError, match=r"seeds=1, not 2.*hpo\.study=NAME"):
        open_study(about={"base": ["env=a"], "seeds": 2})


def test_objectives_that_changed_or_changed_places_are_refused(open_study):
    open_study(objectives={"late_return": "maximize", "success_rate": "maximize"})
    with pytest.raises(ConfigError, match="begun with objectives="):
        open_study(objectives={"success_rate": "maximize", "late_return": "maximize"})


def test_a_study_whose_maker_died_before_saying_what_it_is_about_is_taken_over(
    open_study, monkeypatch
):
    monkeypatch.setattr("rlzoo_plus.tuning.study._ABOUT_PATIENCE_S", 0.1)
    monkeypatch.setattr("rlzoo_plus.tuning.study.settle", lambda study, about, created: None)
    open_study()
    monkeypatch.undo()
    assert open_study(about={"seeds": 3}).about["seeds"] == 3


def test_reading_a_study_that_is_not_there_is_an_error(open_study, tmp_path, storage_name):
    study = open_study()
    assert Study.read("swing", tmp_path, storage_name).about == study.about
    with pytest.raises(ConfigError, match="no study 'other'"):
        Study.read("other", tmp_path, storage_name)


def test_values_that_are_no_numbers_prune_a_trial(open_study):
    study = open_study()
    for value in (math.nan, math.inf):
        asked = study.ask("one")
        draw(asked)
        assert study.done(asked.number, [value], {})
    assert [(view.state, view.reason) for view in study.trials()] == [
        (TrialState.PRUNED, "diverged")
    ] * 2
    assert study.best(1) == []


def test_draws_that_are_no_configuration_do_not_count(open_study):
    study = open_study(n_trials=1)
    assert study.invalid(study.ask("one").number, "batch_size is too large")
    run_one(study)
    assert study.ask("one") is None
    assert states(study) == [TrialState.INVALID, TrialState.DONE]


def test_a_failed_trial_counts(open_study):
    study = open_study(n_trials=1)
    assert study.fail(study.ask("one").number, "the environment crashed")
    assert study.ask("one") is None
    assert study.trials()[0].reason == "the environment crashed"


def test_the_best_are_feasible_done_and_in_order(open_study):
    study = open_study(constraints=["steps_per_s >= 100"])
    for value, speed in ((1.0, 200), (9.0, 50), (3.0, 200), (3.0, 200)):
        asked = study.ask("one")
        study.done(asked.number, [value], {"steps_per_s": speed})
    study.prune(study.ask("one").number, "median")
    assert [view.number for view in study.best(9)] == [2, 3, 0]
    assert [view.number for view in study.best(1)] == [2]


def test_of_several_objectives_the_best_are_those_that_none_beats(open_study):
    aims = {"late_return": "maximize", "training_time_s": "minimize"}
    study = open_study(objectives=aims)
    for values in ((1.0, 5.0), (3.0, 9.0), (1.0, 6.0), (2.0, 7.0), (2.0, 9.5)):
        asked = study.ask("one")
        assert study.reporter(asked.number) is None
        study.done(asked.number, values, {})
    assert [view.number for view in study.best(9)] == [1, 3, 0]


def test_the_first_trial_takes_the_queued_values_and_they_are_queued_once(open_study):
    one, two = open_study(), open_study()
    assert one.enqueue({"x": 0.25}, note="as train")
    assert not two.enqueue({"x": 0.25})
    asked = two.ask("two")
    assert (asked.number, draw(asked)) == (0, 0.25)
    assert draw(one.ask("one")) != 0.25


def test_values_queued_by_two_at_once_are_tried_once(open_study, monkeypatch):
    one, two = open_study(n_trials=2), open_study(n_trials=2)
    monkeypatch.setattr(two, "frozen_trials", list)
    assert one.enqueue({"x": 0.25})
    assert two.enqueue({"x": 0.25})
    monkeypatch.undo()
    drawn = [draw(study.ask("one")) for study in (two, one)]
    assert drawn.count(0.25) == 1
    assert states(one) == [TrialState.RUNNING, TrialState.INVALID, TrialState.RUNNING]


def test_of_two_that_ask_for_the_last_trial_the_lower_number_stays(open_study, monkeypatch):
    one, two = open_study(n_trials=2), open_study(n_trials=2)
    run_one(one)
    seen = one.frozen_trials()
    first = one.ask("one")
    real = two.frozen_trials
    answers = iter([seen])
    monkeypatch.setattr(two, "frozen_trials", lambda: next(answers, None) or real())
    assert two.ask("two") is None
    assert [view.state for view in one.trials()][1:] == [TrialState.RUNNING, TrialState.INVALID]
    assert one.done(first.number, [1.0], {})


def test_a_trial_of_a_dead_owner_goes_on_in_its_place(open_study):
    study = open_study(n_trials=1)
    lost = study.ask("gone")
    x = draw(lost)
    study.set_overrides(lost.number, ["gamma=0.9"])
    study.reporter(lost.number).report(2.0, 4)
    assert open_study(n_trials=1).requeue_orphans(lambda owner: owner == "gone") == [0]
    assert study.trials()[1].overrides == ("gamma=0.9",)
    again = study.ask("one")
    assert (again.number, again.folder, again.retry_of, again.attempt) == (1, lost.folder, 0, 1)
    assert draw(again) == x
    assert study.ask("one") is None
    assert study.trials()[1].intermediate == {4: 2.0}
    assert study.done(again.number, [1.0], {})
    assert states(study) == [TrialState.REQUEUED, TrialState.DONE]
    assert study.best(1)[0].folder == "trials/0000"


def test_the_owner_of_a_trial_that_was_taken_from_it_is_told(open_study):
    study = open_study()
    lost = study.ask("gone")
    draw(lost)
    open_study().requeue_orphans(lambda owner: True)
    assert not study.done(lost.number, [1.0], {"late_return": 1.0})
    assert not study.fail(lost.number, "late")
    assert not study.prune(lost.number, "late")
    assert not study.set_overrides(lost.number, ["a=1"])
    study.beat([lost.number])
    assert study.trials()[0].state is TrialState.REQUEUED


def test_a_trial_of_a_living_owner_is_left_alone(open_study):
    study = open_study()
    study.ask("one")
    assert study.requeue_orphans(ALIVE.get) == []
    assert states(study) == [TrialState.RUNNING]


def test_a_trial_that_takes_each_controller_down_with_it_fails_in_the_end(open_study, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.tuning.trials.MOST_LOSSES", 2)
    study = open_study(n_trials=1)
    for attempt in range(3):
        asked = study.ask("gone")
        assert asked.attempt == attempt
        study.requeue_orphans(lambda owner: True)
    assert study.ask("one") is None
    last = study.trials()[-1]
    assert (last.state, last.reason) == (TrialState.FAILED, "its controller was lost, 3 times")


def test_laying_trials_down_uses_up_no_attempt(open_study):
    study = open_study(n_trials=1)
    for _ in range(3):
        assert study.ask("one").attempt == 0
        assert study.requeue_orphans(lambda owner: owner == "one", counts=False)


def test_a_lost_attempt_without_successor_gets_one(open_study, monkeypatch):
    study = open_study(n_trials=1)
    draw(study.ask("gone"))

    def dies(trial):
        raise KeyboardInterrupt

    monkeypatch.setattr(study.optuna_study, "add_trial", dies)
    with pytest.raises(KeyboardInterrupt):
        study.requeue_orphans(lambda owner: True)
    other = open_study(n_trials=1)
    assert other.ask("two") is None
    assert other.requeue_orphans(ALIVE.get) == [0]
    assert other.ask("two").retry_of == 0


def test_two_successors_of_one_attempt_are_run_once(open_study, monkeypatch):
    from rlzoo_plus.tuning import trial_lease as lease

    study = open_study(n_trials=3)
    draw(study.ask("gone"))
    lost = study.frozen_trials()
    study.requeue_orphans(lambda owner: True)
    study.optuna_study.add_trial(lease.successor_of(lost[0], counts=True))
    assert study.ask("one").retry_of == 0
    assert study.ask("one").retry_of is None
    assert states(study)[1:] == [TrialState.RUNNING, TrialState.INVALID, TrialState.RUNNING]


def test_a_trial_that_was_half_drawn_keeps_what_was_drawn(open_study):
    study = open_study()
    x = draw(study.ask("gone"))
    study.requeue_orphans(lambda owner: True)
    again = study.ask("one")
    assert again.trial.suggest_float("y", 0, 1) <= 1
    assert draw(again) == x


def test_an_owner_that_cannot_be_seen_is_judged_by_its_heartbeats(
    open_study, storage_name, monkeypatch
):
    study = open_study()
    beating, silent = study.ask("far"), study.ask("far")
    draw(beating), draw(silent)
    assert study.requeue_orphans(lambda owner: None) == []
    if storage_name == "journal":
        # It has none; the owners' locks lie beside it for everybody to see.
        return
    _age_heartbeats(study)
    study.beat([beating.number])
    assert study.requeue_orphans(lambda owner: None) == [silent.number]


@pytest.mark.parametrize("storage_name", ["postgresql"], indirect=True)
def test_a_trial_whose_owner_is_seen_to_live_is_kept_although_its_heartbeats_stopped(open_study):
    study = open_study()
    study.ask("near"), study.ask("far")
    _age_heartbeats(study)
    assert study.requeue_orphans({"near": False}.get) == [1]
    assert [state.value for state in states(study)] == ["running", "requeued", "waiting"]


@pytest.mark.parametrize("storage_name", ["postgresql"], indirect=True)
def test_heartbeats_that_stop_in_each_attempt_fail_the_trial_in_the_end(open_study, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.tuning.trials.MOST_LOSSES", 1)
    study = open_study(n_trials=1)
    for _ in range(2):
        study.ask("far")
        _age_heartbeats(study)
        study.requeue_orphans(lambda owner: None)
    assert study.ask("one") is None
    last = study.trials()[-1]
    assert (last.state, last.reason) == (TrialState.FAILED, "its controller was lost, 2 times")


def test_a_trial_that_died_before_its_first_heartbeat_is_found(open_study, storage_name):
    study = open_study()
    number = study.claim("far", "ticket")
    if storage_name == "journal":
        return
    assert study.requeue_orphans(lambda owner: None) == []
    _age_heartbeats(study)
    assert study.requeue_orphans(lambda owner: None) == [number]


def test_a_trial_that_was_taken_from_the_queue_but_never_signed_is_found(
    open_study, storage_name, monkeypatch
):
    study = open_study()
    study.enqueue({"x": 0.5})
    number = study.claim("gone", "ticket")
    assert study.requeue_orphans(lambda owner: None) == []
    if storage_name == "journal":
        monkeypatch.setattr("rlzoo_plus.tuning.trial_lease._UNSIGNED_S", -1.0)
    else:
        _age_heartbeats(study)
    assert study.requeue_orphans(lambda owner: None) == [number]
    assert draw(study.ask("one")) == 0.5


def test_asking_again_with_the_same_ticket_makes_no_second_trial(open_study):
    study = open_study()
    assert study.claim("one", "ticket") == study.claim("one", "ticket") == 0
    attributes = {noted.OWNER: "one", noted.TICKET: "ticket"}
    study.optuna_study.add_trial(create_trial(state=OptunaState.RUNNING, user_attrs=attributes))
    assert study.claim("one", "ticket") == 0
    assert states(study) == [TrialState.RUNNING, TrialState.INVALID]


def test_telling_twice_because_the_answer_was_lost_is_no_loss(open_study):
    study = open_study()
    asked = study.ask("one")
    draw(asked)
    assert study.done(asked.number, [1.0], {"late_return": 1.0})
    assert study.done(asked.number, [1.0], {"late_return": 1.0})
    assert not study.done(asked.number, [2.0], {"late_return": 2.0})


def test_the_same_rung_can_be_reported_again(open_study):
    study = open_study(pruner="median", pruner_options={"n_startup_trials": 1})
    run_one(study)
    asked = study.ask("one")
    draw(asked)
    reporter = study.reporter(asked.number)
    assert [reporter.report(1.0, rung) for rung in (1, 2, 2, 1, 3)] == [None] * 5
    assert study.trials()[1].intermediate == {1: 1.0, 2: 1.0, 3: 1.0}


def test_a_reporter_prunes_what_is_worse_than_the_median(open_study):
    study = open_study(pruner_options={"n_startup_trials": 2})
    for value in (5.0, 6.0):
        asked = study.ask("one")
        assert study.reporter(asked.number).report(value, 10) is None
        study.done(asked.number, [value], {})
    asked = study.ask("one")
    reason = study.reporter(asked.number).report(1.0, 10)
    assert "median" in reason
    assert study.prune(asked.number, reason)
    assert study.trials()[2].reason == reason


def test_a_reporter_says_that_a_policy_has_diverged(open_study):
    study = open_study()
    assert study.reporter(study.ask("one").number).report(math.nan, 3) == "diverged"


def test_a_reporter_of_a_closed_trial_lets_the_training_go_on(open_study):
    study = open_study()
    asked = study.ask("gone")
    reporter = study.reporter(asked.number)
    study.requeue_orphans(lambda owner: True)
    assert reporter.report(1.0, 3) is None


def test_a_reporter_without_its_storage_lets_the_training_go_on(settings, tmp_path, caplog):
    hpo = settings().model_dump(mode="json")
    reporter = TrialReporter("journal", str(tmp_path / "gone"), "swing", 0, hpo)
    assert reporter.report(1.0, 1) is None
    assert "training continues" in caplog.text


def test_a_grid_ends_when_all_its_points_are_tried(open_study):
    grid = {"x": [0.0, 0.5, 1.0], "y": ["a", "b"]}
    study = open_study(grid=grid, sampler="grid", n_trials=100)
    assert not study.enqueue({"x": 0.5})
    seen = []
    while (asked := study.ask("one")) is not None:
        seen.append(_draw_point(asked))
        if len(seen) == 2:
            study.requeue_orphans(lambda owner: True)
            again = study.ask("one")
            assert _draw_point(again) == seen[-1]
            asked = again
        assert study.done(asked.number, [1.0], {})
    assert sorted(seen) == sorted((x, y) for x in grid["x"] for y in grid["y"])


def test_a_storage_of_a_stranger_is_read_defensively(open_study):
    study = open_study()
    asked = study.ask("\x1b[31mred")
    note = asked.trial.set_user_attr
    note("overrides", ["ok", 1])
    note("folder", "../../etc")
    note("figures", {"late_return": "high", "final_return": True, "best_return": 2})
    note("retry_of", "none")
    note("reason", ["x"])
    (view,) = study.trials()
    assert "\x1b" not in view.owner
    assert (view.overrides, view.folder, view.reason) == ((), "trials/0000", "")
    assert (view.metrics, view.retry_of) == ({"best_return": 2.0}, None)


def test_a_root_of_a_stranger_makes_no_large_number():
    trials = [create_trial(value=1.0) for _ in range(3)]
    for number, trial in enumerate(trials):
        trial.number = number
    trials[2].user_attrs[noted.ROOT] = 10**18
    assert noted.undisturbed_number(trials[2], trials) == 3


def test_states_that_count_fill_the_study(open_study):
    study = open_study(n_trials=4)
    run_one(study)
    study.prune(study.ask("one").number, "median")
    study.fail(study.ask("one").number, "crash")
    study.ask("one")
    assert study.ask("one") is None
    assert all(state in COUNTED for state in states(study))


def _draw_point(asked):
    grid = {"x": [0.0, 0.5, 1.0], "y": ["a", "b"]}
    return tuple(asked.trial.suggest_categorical(key, values) for key, values in grid.items())


def _age_heartbeats(study):
    import sqlalchemy

    with study.storage.engine.begin() as connection:
        statement = "UPDATE trial_heartbeats SET heartbeat = heartbeat - interval '1 hour'"
        connection.execute(sqlalchemy.text(statement))
