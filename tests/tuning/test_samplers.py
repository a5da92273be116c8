"""What draws the values: reproducible, checked, and safe with a stranger's storage."""

import pickle
import warnings

import pytest

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.tuning.cma_state import load_optimizer
from rlzoo_plus.tuning.constraints import parse_constraints
from rlzoo_plus.tuning.samplers import SAMPLERS, make_sampler, trial_seed
from rlzoo_plus.tuning.study import Study

GRID = {"x": [0.0, 0.25, 0.5, 0.75, 1.0], "y": [1, 2, 3]}
TWO = {"late_return": "maximize", "training_time_s": "minimize"}


@pytest.fixture
def draws(tmp_path, settings):
    """Return a function: settings to the points that a study of one worker draws."""

    def draw(folder, count, **changes):
        hpo = settings(n_trials=count, **changes)
        grid = GRID if hpo.sampler == "grid" else None
        # Opened anew for each trial: as little may be kept in memory as with a new command.
        points = []
        while True:
            study = Study.open("swing", tmp_path / folder, hpo, {}, grid)
            asked = study.ask("one")
            if asked is None:
                return points
            point = _point(asked.trial, hpo.sampler)
            points.append(point)
            values = [point[0] * point[1], point[0]][: len(hpo.objectives)]
            assert study.done(asked.number, values, {"late_return": values[0]})

    return draw


def _point(trial, sampler):
    if sampler == "grid":
        return tuple(trial.suggest_categorical(key, values) for key, values in GRID.items())
    return trial.suggest_float("x", 0.0, 1.0), trial.suggest_int("y", 1, 3)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_study_draws_the_same_points_again_and_none_twice(draws, sampler):
    options = {"tpe": {"n_startup_trials": 4}, "gp": {"n_startup_trials": 4}}.get(sampler, {})
    changes = {"sampler": sampler, "sampler_options": options}
    points = draws("a", 12, **changes)
    # A GP that has found the best point stays there.
    assert len(points) == 12
    assert sampler == "gp" or len(set(points)) == 12
    assert draws("b", 12, **changes) == points
    if sampler not in ("qmc", "grid"):
        assert draws("c", 12, seed=1, **changes) != points


@pytest.mark.parametrize("sampler", [name for name in SAMPLERS if name != "cmaes"])
def test_samplers_for_several_objectives_draw_for_two(draws, sampler):
    assert len(draws("a", 12, sampler=sampler, objectives=TWO)) == 12


def test_a_sampler_for_one_objective_is_refused_for_two(settings):
    with pytest.raises(ConfigError, match="knows one objective only; for several: tpe"):
        make_sampler(settings(sampler="cmaes", objectives=TWO), 0)


def test_tpe_learns_within_few_trials(draws):
    points = draws("a", 30, sampler_options={"n_startup_trials": 8})
    assert sum(x * y > 1.5 for x, y in points[15:]) > sum(x * y > 1.5 for x, y in points[:8])


def test_neighbouring_studies_and_trials_have_different_seeds():
    assert len({trial_seed(seed, number) for seed in range(20) for number in range(20)}) == 400


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampler": "tbe"}, "Did you mean 'tpe'"),
        ({"sampler_options": {"n_startup": 3}}, "Did you mean 'n_startup_trials'"),
        ({"sampler_options": {"n_startup_trials": "ten"}}, "must be a whole number"),
        ({"sampler_options": {"seed": 3}}, "unknown option 'seed'"),
        ({"sampler_options": {"constraints_func": "f"}}, "unknown option"),
        ({"sampler": "qmc", "sampler_options": {"qmc_type": "x"}}, "halton"),
        ({"sampler": "nsga2", "sampler_options": {"population_size": 1}}, "population_size"),
        ({"sampler": "random", "sampler_options": {"a": 1}}, "unknown option 'a'"),
    ],
)
def test_wrong_settings_are_told_with_what_would_be_right(settings, changes, message):
    with pytest.raises(ConfigError, match=message):
        make_sampler(settings(**changes), 0)


def test_options_can_turn_off_what_is_on_by_itself(settings):
    options = {"multivariate": False, "constant_liar": False, "n_startup_trials": 5.0}
    sampler = make_sampler(settings(sampler_options=options), 0)
    assert (sampler._multivariate, sampler._group, sampler._constant_liar) == (False, False, False)
    assert sampler._n_startup_trials == 5


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samplers_are_quiet(draws, sampler, capfd):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        from rlzoo_plus.tuning.quiet import quiet_optuna

        quiet_optuna()
        draws("a", 6, sampler=sampler)
    assert [str(warning.message) for warning in caught] == []
    assert capfd.readouterr() == ("", "")


def test_a_package_that_a_sampler_needs_is_named(settings, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the package cmaes.*rlzoo-plus\[tune\]"):
        make_sampler(settings(sampler="cmaes"), 0)


@pytest.mark.parametrize("kind", [{}, {"with_margin": True}, {"use_separable_cma": True}])
def test_cma_goes_on_from_its_stored_state(draws, kind):
    options = {"popsize": 4, "n_startup_trials": 1, **kind}
    points = draws("a", 20, sampler="cmaes", sampler_options=options)
    assert draws("b", 20, sampler="cmaes", sampler_options=options) == points


class Evil:
    def __reduce__(self):
        return print, ("code of a stranger",)


def test_the_stored_state_of_cma_runs_no_code(capsys):
    with pytest.raises(ConfigError, match=r"builtins\.print has no place there"):
        load_optimizer(pickle.dumps(Evil()))
    for data in (b"", b"\x80\x04.", pickle.dumps(3), b"cos\nsystem\n(S'true'\ntR."):
        with pytest.raises(ConfigError):
            load_optimizer(data)
    assert capsys.readouterr().out == ""


def test_constraints_measure_how_much_they_are_broken():
    lower, upper = parse_constraints(["steps_per_s >= 1e3", " training_time_s<=300 "])
    figures = {"steps_per_s": 400.0, "training_time_s": 100.0}
    assert (lower.violation(figures), upper.violation(figures)) == (600.0, -200.0)
    assert lower.violation({}) > 0
    assert sorted([upper.key, lower.key]) == [lower.key, upper.key]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps_per_s > 3", "is no constraint"),
        ("steps_per_s >= fast", "is no constraint"),
        ("steps_per_s >= 1 or 1", "is no constraint"),
        ("step_per_s >= 3", "Did you mean 'steps_per_s'"),
    ],
)
def test_what_is_no_constraint_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_constraints([text])
