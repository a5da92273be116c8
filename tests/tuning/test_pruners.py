"""What ends trials early: names, options, and what each of them does."""

import optuna
import pytest

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.objectives import RUNGS
from rlzoo_plus.tuning.samplers import PRUNERS, make_pruner, pruning_note
from rlzoo_plus.tuning.study import Study

TWO = {"late_return": "maximize", "training_time_s": "minimize"}


def run_study(tmp_path, hpo, curves):
    """Run trials with given curves; return the rung at which each was pruned."""
    study = Study.open("swing", tmp_path, hpo, {})
    ends = []
    for curve in curves:
        asked = study.ask("one")
        reporter = study.reporter(asked.number)
        for rung, value in enumerate(curve, 1):
            if reporter is not None and reporter.report(value, rung) is not None:
                ends.append(rung)
                study.prune(asked.number, "worse")
                break
        else:
            ends.append(None)
            study.done(asked.number, [curve[-1]], {})
    return ends


def flat(level):
    return [float(level)] * RUNGS


@pytest.mark.parametrize("pruner", [name for name in PRUNERS if name != "none"])
def test_a_bad_trial_is_pruned_and_the_best_is_not(tmp_path, settings, pruner):
    options = {"n_startup_trials": 3} if pruner in ("median", "percentile", "patient") else {}
    hpo = settings(pruner=pruner, pruner_options=options)
    falling = [1.0 - rung / 100 for rung in range(RUNGS)]
    ends = run_study(tmp_path, hpo, [flat(9)] * 6 + [falling] * 6 + [flat(10)])
    # Hyperband spreads the trials over brackets, and not all of them prune early.
    assert any(end is not None for end in ends[6:12])
    assert ends[-1] is None


def test_none_prunes_nothing(tmp_path, settings):
    ends = run_study(tmp_path, settings(pruner="none"), [flat(9)] * 8 + [flat(1)])
    assert ends == [None] * 9


def test_a_minimised_figure_is_pruned_from_above(tmp_path, settings):
    hpo = settings(objectives={"late_return": "minimize"})
    assert run_study(tmp_path, hpo, [flat(1)] * 5 + [flat(9), flat(0)]) == [None] * 5 + [5, None]


def test_patience_waits_for_a_trial_that_still_improves(tmp_path, settings):
    hpo = settings(pruner="patient", pruner_options={"patience": 3, "n_startup_trials": 2})
    rising = [value / 10 for value in range(RUNGS)]
    falling = [1.0 - value for value in rising]
    assert run_study(tmp_path, hpo, [flat(9), flat(9), rising, falling]) == [None, None, None, 5]


def test_percentile_keeps_a_quarter_by_itself(settings):
    assert make_pruner(settings(pruner="percentile"), RUNGS)._percentile == 25.0


def test_hyperband_ends_where_the_seeds_of_a_trial_end(settings):
    assert make_pruner(settings(pruner="hyperband"), 3 * RUNGS)._max_resource == 3 * RUNGS


def test_several_objectives_prune_nothing_and_a_note_says_so(settings):
    hpo = settings(objectives=TWO)
    assert isinstance(make_pruner(hpo, RUNGS), optuna.pruners.NopPruner)
    assert "several objectives" in pruning_note(hpo)
    assert pruning_note(settings(objectives=TWO, pruner="none")) is None
    assert pruning_note(settings()) is None


def test_a_pruner_that_is_put_aside_takes_its_options_with_it(settings):
    pruner = make_pruner(settings(pruner="none", pruner_options={"patience": 1}), RUNGS)
    assert isinstance(pruner, optuna.pruners.NopPruner)


def test_the_first_quarter_of_a_run_is_never_pruned_by_itself(settings):
    assert make_pruner(settings(), RUNGS)._n_warmup_steps == RUNGS // 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pruner": "medium"}, "Did you mean 'median'"),
        ({"pruner_options": {"n_startup": 3}}, "Did you mean 'n_startup_trials'"),
        ({"pruner_options": {"n_startup_trials": 1.5}}, "must be a whole number"),
        ({"pruner_options": {"n_startup_trials": -1}}, "negative, but got n_startup_trials=-1"),
        ({"pruner_options": {"interval_steps": 0}}, "at least 1"),
        ({"pruner": "percentile", "pruner_options": {"percentile": 200}}, "[Pp]ercentile"),
        ({"pruner": "patient", "pruner_options": {"patient": 2}}, "Did you mean"),
        ({"pruner": "patient", "pruner_options": {"wrapped_pruner": "x"}}, "unknown option"),
        (
            {"pruner": "halving", "pruner_options": {"reduction_factor": 1}},
            "is 1, .* >= 2",
        ),
        ({"pruner": "hyperband", "pruner_options": {"max_resource": 1}}, "below min_resource"),
        (
            {"pruner": "hyperband", "pruner_options": {"reduction_factor": 1}},
            "is 1, .* >= 2",
        ),
    ],
)
def test_wrong_settings_are_told_with_what_would_be_right(settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        make_pruner(settings(**changes), RUNGS)
