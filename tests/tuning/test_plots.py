"""The plots of a study can be drawn at every stage of it."""

import numpy as np
import optuna
import pytest
from matplotlib.text import Text

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import study_plots
from rlzoo_plus.tuning.stored_study import importances
from rlzoo_plus.tuning.study_plots import OPTUNA_PLOTS, Drawn, plot_study, short_name

ONE = {"late_return": "maximize"}
TWO = {"late_return": "maximize", "training_time_s": "minimize"}
THREE = {**TWO, "steps_per_s": "maximize"}


def drawn(study, objectives=ONE, **more):
    return Drawn("Study $mine", study, list(objectives), **more)


def study_with(*trials, objectives=ONE):
    study = optuna.create_study(directions=list(objectives.values()))
    study.add_trials([optuna.create_trial(**trial) for trial in trials])
    return study


def done(*values, **params):
    choices = {k: optuna.distributions.CategoricalDistribution([v]) for k, v in params.items()}
    reports = {rung: 10.0 * rung for rung in range(1, 21)}
    found = {"params": params, "distributions": choices, "intermediate_values": reports}
    return {"values": values, **found}


PRUNED = {"state": optuna.trial.TrialState.PRUNED, "intermediate_values": {1: 3.0, 2: 4.0}}
FAILED = {"state": optuna.trial.TrialState.FAIL}


@pytest.mark.parametrize(
    ("trials", "objectives"),
    [
        ([done(5.0)], ONE),
        ([done(5.0, y="tanh"), PRUNED, FAILED], ONE),
        ([PRUNED], ONE),
        ([done(5.0, 1.0, x=1), done(4.0, 0.5, x=1)], TWO),
        ([done(5.0, 1.0, 2.0)], THREE),
        ([done(5.0, 1.0, 2.0, 3.0)], {**THREE, "best_return": "maximize"}),
        ([done(5.0, **{"a" * 300: "b$" * 300, "c\x1b": "d"})], ONE),
    ],
)
def test_a_study_of_any_kind_is_drawn(tmp_path, trials, objectives):
    study = study_with(*trials, objectives=objectives)
    out = plot_study(drawn(study, objectives), tmp_path / "study.png")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_study_without_any_value_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no trial has a value yet"):
        plot_study(drawn(study_with(FAILED)), tmp_path / "study.png")


@pytest.mark.parametrize(
    ("objectives", "kinds"),
    [
        (ONE, ["optimization_history", "intermediate_values", "param_importances", "slice"]),
        (TWO, ["optimization_history", "pareto_front", "param_importances", "slice"]),
    ],
)
def test_the_overview_has_the_plots_that_say_most(tmp_path, monkeypatch, objectives, kinds):
    kept = []
    monkeypatch.setattr(study_plots, "rendered", lambda figure, kind: titles(kept, figure))
    monkeypatch.setattr(study_plots.pyplot, "imread", lambda _: np.zeros((2, 2)))
    study = study_with(
        *(done(*[1.0] * len(objectives), x=1) for _ in range(2)), objectives=objectives
    )
    plot_study(drawn(study, objectives, importances={"x": 1.0}), tmp_path / "study.png")
    assert kept == [r"Study \$mine: " + kind.replace("_", " ") for kind in kinds]


def test_importances_are_drawn_as_they_are_told(monkeypatch, tmp_path):
    study, bars = study_with(*(done(1.0, x=1, y=2) for _ in range(2)), objectives=ONE), {}

    def look(figure, _):
        axes = figure.axes[0]
        if "importances" in figure.get_suptitle():
            names = (label.get_text() for label in axes.get_yticklabels())
            bars.update(zip(names, (bar.get_width() for bar in axes.patches), strict=True))
        return b""

    monkeypatch.setattr(study_plots, "rendered", look)
    monkeypatch.setattr(study_plots.pyplot, "imread", lambda _: np.zeros((2, 2)))
    plot_study(drawn(study, ONE, importances={"y": 0.75, "x": 0.25}), tmp_path / "study.png")
    assert bars == {"y": 75.0, "x": 25.0}


def titles(kept, figure):
    kept.append(figure.get_suptitle())
    return b""


def test_long_names_keep_their_end():
    assert short_name("algo.hyperparams.gamma") == "gamma"
    assert short_name("env.kwargs.reward.a_long_name_of_a_weight").endswith("_name_of_a_weight")


def study_of(objective, n_trials=40, directions=("maximize",)):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(directions=list(directions), sampler=sampler)
    study.optimize(objective, n_trials=n_trials)
    return study


@pytest.mark.parametrize(("direction", "decides"), [("maximize", "lifts"), ("minimize", "lowers")])
def test_what_leads_to_good_values_is_important_in_the_studys_direction(direction, decides):
    def objective(trial):
        lifts = trial.suggest_float("lifts", 0, 1) > 0.8
        lowers = trial.suggest_float("lowers", 0, 1) > 0.8
        return 10.0 * lifts - 10.0 * lowers + 1e-3 * trial.number

    shares = importances(study_of(objective, n_trials=200, directions=[direction]))
    assert next(iter(shares)) == decides
    assert shares[decides] > 0.8
    assert sum(shares.values()) == pytest.approx(1.0)


def test_each_objective_has_importances_of_its_own():
    def objective(trial):
        return trial.suggest_float("x", 0, 1), trial.suggest_float("y", 0, 1)

    study = study_of(objective, directions=("maximize", "minimize"))
    assert [next(iter(importances(study, place))) for place in (0, 1)] == ["x", "y"]


@pytest.mark.parametrize("n_trials", [0, 1, 3])
def test_of_too_few_trials_no_importance_is_told(n_trials):
    assert importances(study_of(lambda trial: trial.suggest_float("x", 0, 1), n_trials)) == {}


def test_of_trials_that_do_not_differ_no_importance_is_told():
    assert importances(study_of(lambda trial: 0 * trial.suggest_float("x", 0, 1))) == {}


def test_a_parameter_of_some_trials_only_has_an_importance():
    def objective(trial):
        kind = trial.suggest_categorical("kind", ["a", "b"])
        return trial.suggest_float("of_a", 0, 1) if kind == "a" else 0.0

    assert "of_a" in importances(study_of(objective))


def named_study(directions=("maximize",)):
    def objective(trial):
        rate = trial.suggest_float("algo.hyperparams.learning_rate", 1e-5, 1e-1, log=True)
        net = trial.suggest_categorical("network.net_arch", ["[64,64]", "[256]"])
        return [rate + len(net)] * len(directions)

    return study_of(objective, n_trials=8, directions=directions)


@pytest.mark.parametrize("objectives", [ONE, TWO], ids=["one", "two"])
@pytest.mark.parametrize("kind", OPTUNA_PLOTS)
def test_optunas_plots_are_drawn_with_our_names_and_leave_no_figure_open(
    tmp_path, monkeypatch, kind, objectives
):
    from matplotlib import pyplot

    texts = []

    def keep(figure, out):
        figure.canvas.draw()
        texts.extend(text.get_text() for text in figure.findobj(Text))
        return out

    monkeypatch.setattr(study_plots, "save_plot", keep)
    study = named_study(tuple(objectives.values()))
    facecolor = pyplot.rcParams["axes.facecolor"]
    plot_study(drawn(study, objectives), tmp_path / "out.png", kind)
    assert r"Study \$mine: " + kind.replace("_", " ") in texts
    assert not any("algo.hyperparams" in text for text in texts)
    assert OPTUNA_PLOTS[kind] is any("learning_rate" in text for text in texts)
    assert pyplot.get_fignums() == []
    assert pyplot.rcParams["axes.facecolor"] == facecolor


def test_a_plot_that_optuna_does_not_have_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'contour'"):
        plot_study(drawn(named_study()), tmp_path / "out.png", "contours")


def test_names_that_would_be_cut_to_the_same_text_stay_whole(tmp_path, monkeypatch):
    names = {f"{part}.a_very_long_name_of_a_value" for part in ("first", "other")}
    texts = []
    monkeypatch.setattr(
        study_plots,
        "save_plot",
        lambda figure, out: texts.extend(text.get_text() for text in figure.findobj(Text)) or out,
    )
    study = study_of(lambda trial: sum(trial.suggest_float(name, 0, 1) for name in names), 5)
    plot_study(drawn(study), tmp_path / "out.png", "slice")
    assert names <= set(texts)
