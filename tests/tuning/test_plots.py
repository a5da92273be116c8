"""The overview of a study can be drawn at every stage of it."""

import optuna
import pytest
from matplotlib.text import Text

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import study_plots
from rlzoo_plus.tuning.stored_study import importances
from rlzoo_plus.tuning.study_plots import (
    OPTUNA_PLOTS,
    Overview,
    plot_study,
    plot_with_optuna,
    short_name,
)
from rlzoo_plus.tuning.trials import TrialState, TrialView, view_of

ONE = {"late_return": "maximize"}
TWO = {"late_return": "maximize", "training_time_s": "minimize"}


def done(number, *values, **params):
    reports = {rung: 10.0 * rung + number for rung in range(1, 21)}
    return TrialView(number, TrialState.DONE, values, params, intermediate=reports)


def pruned(number):
    return TrialView(number, TrialState.PRUNED, params={"x": 0.1}, intermediate={1: 3.0, 2: 4.0})


def overview(trials, objectives=ONE, **more):
    return Overview("Study $mine", trials, objectives, **more)


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Return a function that draws a overview and gives back its panels by title."""

    def draw(made):
        kept = []
        monkeypatch.setattr(
            study_plots, "save_plot", lambda figure, out: kept.append(figure) or out
        )
        plot_study(made, tmp_path / "study.png")
        return {axes.get_title(loc="left"): axes for axes in kept[0].axes}

    return draw


@pytest.mark.parametrize(
    "made",
    [
        overview([done(0, 5.0)]),
        overview([done(0, 5.0, x=1e-5, y="tanh"), done(1, 6.0, x=1e-2, y=True), pruned(2)]),
        overview([pruned(0)]),
        overview([done(0, 5.0), TrialView(1, TrialState.FAILED)], importances={"x": 1.0}),
        overview([done(n, float(n), x=2 ** (n % 3)) for n in range(9)], front=[8], seeds=3),
        overview([done(0, 5.0, 1.0, x=1), done(1, 4.0, 0.5, x=2)], TWO, front=[0, 1]),
        overview([done(0, 5.0, 1.0, 2.0)], {**TWO, "steps_per_s": "maximize"}, front=[0]),
        overview([done(0, 5.0, **{"a" * 300: "b$" * 300, "c\x1b": [1, 2]})]),
    ],
)
def test_a_study_of_any_kind_is_drawn(tmp_path, made):
    out = plot_study(made, tmp_path / "study.png")
    assert out.read_bytes().startswith(b"\x89PNG")


def test_a_study_without_any_value_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="no trial has a value yet"):
        plot_study(overview([TrialView(0, TrialState.RUNNING)]), tmp_path / "study.png")


@pytest.mark.parametrize(
    ("direction", "best"), [("maximize", [3, 3, 5, 5]), ("minimize", [3, 1, 1, 1])]
)
def test_the_history_shows_the_best_so_far_in_the_studys_direction(drawn, direction, best):
    trials = [done(n, value) for n, value in enumerate([3.0, 1.0, 5.0])]
    history = drawn(overview(trials, {"late_return": direction}))["history"]
    line = next(line for line in history.lines if line.get_label().startswith("best"))
    assert list(line.get_ydata()) == best


def test_a_trial_that_breaks_a_constraint_is_never_the_best(drawn):
    broken = TrialView(1, TrialState.DONE, (9.0,), violations=(1.0,))
    history = drawn(overview([done(0, 3.0), broken]))["history"]
    labels = [line.get_label() for line in history.lines]
    assert "best: 3" in labels
    assert "breaks a constraint" in labels


def test_learning_curves_mark_where_trials_were_pruned(drawn):
    curves = drawn(overview([done(0, 5.0), pruned(1)]))["learning curves"]
    [mark] = [line for line in curves.lines if line.get_label() == "pruned here"]
    assert (list(mark.get_xdata()), list(mark.get_ydata())) == ([0.1], [4.0])


def test_two_objectives_show_their_trade_off_instead_of_curves(drawn):
    panels = drawn(overview([done(0, 5.0, 1.0), done(1, 4.0, 0.5)], TWO, front=[1, 0]))
    [front] = [x for x in panels["trade-off"].lines if x.get_label() == "Pareto front"]
    assert list(front.get_xdata()) == [4.0, 5.0]
    assert "learning curves" not in panels


def test_the_most_important_parameters_get_a_panel(drawn):
    trials = [done(n, float(n), a=n, b=n, c=n, d=n) for n in range(5)]
    shares = {"d": 0.6, "c": 0.2, "b": 0.15, "a": 0.05}
    panels = drawn(overview(trials, importances=shares))
    assert {"d", "c", "b"} <= set(panels)
    assert "a" not in panels


def test_a_parameter_over_orders_of_magnitude_has_a_logarithmic_axis(drawn):
    wide = [done(n, float(n), x=10.0**-n, y=0.1 * n) for n in range(1, 12)]
    panels = drawn(overview(wide))
    assert (panels["x"].get_xscale(), panels["y"].get_xscale()) == ("log", "linear")


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

    study = study_of(objective, n_trials=8, directions=directions)
    return study, [view_of(trial) for trial in study.trials]


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
    study, views = named_study(tuple(objectives.values()))
    facecolor = pyplot.rcParams["axes.facecolor"]
    plot_with_optuna(kind, study, overview(views, objectives), tmp_path / "out.png")
    assert r"Study \$mine: " + kind.replace("_", " ") in texts
    assert not any("algo.hyperparams" in text for text in texts)
    assert OPTUNA_PLOTS[kind] is any("learning_rate" in text for text in texts)
    assert pyplot.get_fignums() == []
    assert pyplot.rcParams["axes.facecolor"] == facecolor


def test_a_plot_that_optuna_does_not_have_is_refused_with_a_suggestion(tmp_path):
    study, views = named_study()
    with pytest.raises(ConfigError, match="Did you mean 'contour'"):
        plot_with_optuna("contours", study, overview(views), tmp_path / "out.png")


def test_names_that_would_be_cut_to_the_same_text_stay_whole(tmp_path, monkeypatch):
    names = {f"{part}.a_very_long_name_of_a_value" for part in ("first", "other")}
    texts = []
    monkeypatch.setattr(
        study_plots,
        "save_plot",
        lambda figure, out: texts.extend(text.get_text() for text in figure.findobj(Text)) or out,
    )
    study = study_of(lambda trial: sum(trial.suggest_float(name, 0, 1) for name in names), 5)
    made = overview([view_of(trial) for trial in study.trials])
    plot_with_optuna("slice", study, made, tmp_path / "out.png")
    assert names <= set(texts)
