"""What draws the values: reproducible, checked, and safe with a stranger's storage."""

import pickle
import warnings

import numpy as np
import optuna
import pytest
from optuna.samplers import CmaEsSampler

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.objectives import parse_constraints
from rlzoo_plus.tuning.samplers import SAMPLERS, PlainCmaEsSampler, make_sampler, trial_seed
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.with_optuna import silence_optuna

GRID = {"x": [0.0, 0.25, 0.5, 0.75, 1.0], "y": [1, 2, 3]}
TWO = {"late_return": "maximize", "training_time_s": "minimize"}


@pytest.fixture
def draws(tmp_path, settings):
    """Return a function: settings to the points that a study of one worker draws.

    The worker of each of the `killed` draws dies before its trial has ended.
    """

    def draw(folder, count, killed=(), **changes):
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
            if len(points) in killed and not asked.attempt:
                study.set_overrides(asked.number, ["gamma=0.9"])
                study.requeue_orphans(lambda owner: True)
                continue
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


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_killed_study_draws_what_it_would_have_drawn(draws, sampler):
    options = {"tpe": {"n_startup_trials": 4}, "gp": {"n_startup_trials": 4}}.get(sampler, {})
    changes = {"sampler": sampler, "sampler_options": options}
    whole, killed = draws("a", 12, **changes), draws("b", 12, killed=(1, 4, 5, 8), **changes)
    assert killed == whole


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
        silence_optuna()
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


CMA_OPTIONS = {
    "plain": {},
    "learning rate adaptation": {"lr_adapt": True},
    "separable": {"use_separable_cma": True},
    "margin": {"with_margin": True},
    "a large population": {"popsize": 9},
    "restarts": {"restart_strategy": "ipop", "inc_popsize": 2},
    "a start": {"x0": {"x": 0.2, "y": 0.3, "n": 4}, "sigma0": 0.2},
}


def cma_points(*sampler_classes, options, count=20):
    """Return what samplers draw, each `count` trials, made anew for each trial; and the study."""
    study = optuna.create_study(direction="maximize")
    for number, sampler_class in enumerate(each for each in sampler_classes for _ in range(count)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            study.sampler = sampler_class(**options, seed=number, warn_independent_sampling=False)
        trial = study.ask()
        x, y = trial.suggest_float("x", 0.0, 1.0), trial.suggest_float("y", 1e-4, 1.0, log=True)
        study.tell(trial, x * y * trial.suggest_int("n", 1, 8))
    return [trial.params for trial in study.trials], study


def stored_states(study):
    return [key for trial in study.trials for key in trial.system_attrs if "optimizer" in key]


@pytest.mark.parametrize("kind", CMA_OPTIONS)
def test_cma_draws_what_optunas_own_draws_and_stores_no_pickle(kind):
    options = CMA_OPTIONS[kind]
    ours, study = cma_points(PlainCmaEsSampler, options=options, count=40)
    stock, other = cma_points(CmaEsSampler, options=options, count=40)
    assert ours == stock
    assert stored_states(other)
    assert not stored_states(study)


@pytest.mark.parametrize("kind", CMA_OPTIONS)
def test_a_study_with_stored_states_of_optuna_goes_on_as_it_would_have(kind):
    options = CMA_OPTIONS[kind]
    ours, _ = cma_points(CmaEsSampler, PlainCmaEsSampler, options=options)
    stock, study = cma_points(CmaEsSampler, options=options, count=40)
    assert ours == stock
    assert stored_states(study)


def test_cma_goes_on_with_a_margin_when_a_parameter_is_no_longer_in_all_trials():
    study = optuna.create_study(sampler=PlainCmaEsSampler(seed=0, with_margin=True, popsize=3))
    for number in range(16):
        trial = study.ask()
        total = trial.suggest_float("x", 0.0, 1.0) + trial.suggest_float("y", 0.0, 1.0)
        study.tell(trial, total + (trial.suggest_float("z", 0.0, 1.0) if number < 6 else 0.0))
    sizes = {len(trial.system_attrs.get("x_for_tell", ())) for trial in study.trials}
    assert sizes == {0, 2, 3}


class Evil:
    def __reduce__(self):
        return print, ("code of a stranger",)


def forged_optimizer(**changes):
    """Return the pickle of an optimizer with other attributes."""
    # It imports scipy's statistics, which takes more than a second.
    import cmaes

    optimizer = cmaes.CMA(np.full(2, 0.5), 0.1, np.tile([0.0, 1.0], (2, 1)))
    content = pickle.dumps({**optimizer.__getstate__(), **changes}, 2)
    content = content.removeprefix(b"\x80\x02").removesuffix(b".")
    return b"\x80\x02ccmaes._cma\nCMA\n)\x81" + content + b"b."


# No part of a state is looked at, so one of each kind will do.
STATES = {
    "code": {"cma:optimizer:0": pickle.dumps(Evil()).hex()},
    "a command": {"cma:optimizer:0": b"cos\nsystem\n(S'true'\ntR.".hex()},
    "code in an optimizer": {"cma:optimizer:0": lambda: forged_optimizer(_sigma=Evil()).hex()},
    "a huge population": {"cma:optimizer:0": lambda: forged_optimizer(_popsize=10**12).hex()},
    "far too much": {"cma:optimizer:0": lambda: (b"\x80\x04" + b"N0" * 2**25).hex()},
    "nothing": {"cma:optimizer:0": ""},
    "no hex": {"cma:optimizer:0": "no hex"},
    "no text": {"cma:optimizer:0": 3},
    "a later part": {"cma:optimizer:7": "80"},
    "another form": {"cma:optimizer": ["80"]},
    "a generation": {"cma:generation": "first"},
}


def points_beside(**attributes):
    """Return what CMA-ES draws after three trials and one that has these system attributes."""
    study = optuna.create_study(sampler=PlainCmaEsSampler(seed=0, popsize=3))
    for _ in range(3):
        trial = study.ask()
        study.tell(trial, trial.suggest_float("x", 0.0, 1.0))
    x = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    forged = optuna.create_trial(
        value=1.0, params={"x": 0.5}, distributions=x, system_attrs=attributes
    )
    study.add_trial(forged)
    points = []
    for _ in range(6):
        trial = study.ask()
        points.append(trial.suggest_float("x", 0.0, 1.0))
        study.tell(trial, points[-1])
    return points


@pytest.mark.parametrize("name", STATES)
def test_a_stored_state_of_cma_is_never_unpickled(name, capsys, monkeypatch):
    expected = points_beside()
    state = {key: part() if callable(part) else part for key, part in STATES[name].items()}
    monkeypatch.setattr(pickle, "loads", lambda *_: pytest.fail("unpickled"))
    assert points_beside(**state) == expected
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("point", [3, "t", [[1]], [None], [float("inf")], [1e300]])
def test_untrusted_points_of_cma_are_one_error_of_the_sampler(point):
    sampler = PlainCmaEsSampler(seed=0, with_margin=True, popsize=3)
    study = optuna.create_study(sampler=sampler)
    x = {"x": optuna.distributions.FloatDistribution(0.0, 1.0)}
    stored = {"cmawm:generation": 0, "x_for_tell": point}
    for _ in range(3):
        study.add_trial(
            optuna.create_trial(value=1.0, params={"x": 0.5}, distributions=x, system_attrs=stored)
        )
    with pytest.raises(ConfigError, match="storage holds"):
        study.ask(x)


def test_constraints_measure_how_much_they_are_broken():
    lower, upper = parse_constraints(["steps_per_s >= 1e3", " training_time_s<=300 "])
    metrics = {"steps_per_s": 400.0, "training_time_s": 100.0}
    assert (lower.violation(metrics), upper.violation(metrics)) == (600.0, -200.0)
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
