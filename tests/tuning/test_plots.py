"""The plots of a study can be drawn at every stage of it."""

import math
import warnings

import optuna
import pytest
from matplotlib.text import Text

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import study_plots
from rlzoo_plus.tuning.stored_study import importances
from rlzoo_plus.tuning.study_charts import (
    CHARTS,
    OVERVIEW_ROWS,
    Drawn,
    charts_figure,
    short_name,
)
from rlzoo_plus.tuning.study_plots import KINDS, OPTUNA_PLOTS, plot_study

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
RUNNING = {"state": optuna.trial.TrialState.RUNNING, "intermediate_values": {1: 1.0}}
FAILED = {"state": optuna.trial.TrialState.FAIL}


MANY = {f"env.kwargs.weight_{n}": n for n in range(60)}


@pytest.mark.parametrize(
    ("trials", "objectives"),
    [
        ([done(5.0)], ONE),
        ([done(5.0, y="tanh"), PRUNED, FAILED], ONE),
        ([PRUNED], ONE),
        ([RUNNING], ONE),
        ([done(5.0, x=1), done(5.0, x=1)], ONE),
        ([done(math.inf, x=1), done(-math.inf, x=2)], ONE),
        ([done(math.inf, x=math.nan), done(1.0, x=math.inf)], ONE),
        ([done(5.0, **MANY), done(4.0, **MANY)], ONE),
        ([done(5.0, x=None, y=True), done(4.0, x="a", z="[64,64]")], ONE),
        ([done(1e308, x=1e-300), done(-1e308, x=1e300)], ONE),
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
    for kind in KINDS:
        with pytest.raises(ConfigError, match="no trial has a value yet"):
            plot_study(drawn(study_with(FAILED)), tmp_path / "study.png", kind)


@pytest.mark.parametrize(
    ("kind", "needs"), [("pareto_front", "several objectives"), ("param_importances", "differ")]
)
def test_a_chart_of_what_the_study_does_not_have_says_what_it_needs(tmp_path, kind, needs):
    with pytest.raises(ConfigError, match=f"--kind {kind} needs .*{needs}"):
        plot_study(drawn(study_with(done(1.0))), tmp_path / "study.png", kind)


def figure_of(study, objectives=ONE, rows=OVERVIEW_ROWS, **more):
    about = drawn(study, objectives, **more)
    return charts_figure(about, [[k for k in row if CHARTS[k].is_known(about)] for row in rows])


def titles(figure):
    return [text for axes in figure.axes if (text := axes.get_title(loc="left"))]


@pytest.mark.parametrize(
    ("objectives", "second"), [(ONE, "Learning curves of the trials"), (TWO, "Pareto front")]
)
def test_the_overview_has_the_charts_that_say_most(objectives, second):
    trials = (done(*[1.0] * len(objectives), x=1) for _ in range(2))
    figure = figure_of(
        study_with(*trials, objectives=objectives), objectives, importances={"x": 1.0}
    )
    assert figure.get_suptitle() == r"Study \$mine"
    assert titles(figure) == [
        "History of late return",
        second,
        "Importance for late return",
        "Each value and late return",
        "Values together",
    ]


def marks(axes):
    """Return the points of each label."""
    lines = (line for line in axes.lines if not line.get_label().startswith("_"))
    return {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in lines}


def test_each_trial_is_marked_as_what_it_is_and_failed_ones_are_not_drawn():
    broken = done(9.0, x=1) | {"constraints": {"00 a": 1.0}}
    study = study_with(done(5.0, x=1), PRUNED, FAILED, broken, done(6.0, x=2), RUNNING)
    history, curves, *_ = figure_of(study).axes
    assert history.get_xlabel() == "trial (1 failed: not drawn)"
    assert marks(history) == {
        "done": [(0, 5.0)],
        "pruned, at its last report": [(1, 4.0)],
        "breaks a constraint": [(3, 9.0)],
        "best": [(4, 6.0)],
        "running, at its last report": [(5, 1.0)],
        "best so far": [(0, 5.0), (4, 6.0), (5, 6.0)],
    }
    assert marks(curves)["pruned, at its last report"] == [(10.0, 4.0)]
    looks = {(line.get_marker(), line.get_markerfacecolor()) for line in history.lines[:5]}
    assert len(looks) == len({marker for marker, _ in looks}) == 5


def test_of_several_objectives_the_front_is_marked():
    values = [(5.0, 9.0), (4.0, 1.0), (3.0, 5.0)]
    study = study_with(*(done(*each) for each in values), objectives=TWO)
    (axes,) = figure_of(study, TWO, [["pareto_front"]]).axes
    assert marks(axes) == {"done": [(3.0, 5.0)], "Pareto front": [(5.0, 9.0), (4.0, 1.0)]}
    labels = ("late return, maximized", "training time [s], minimized")
    assert (axes.get_xlabel(), axes.get_ylabel()) == labels


@pytest.mark.parametrize("n", [29, 30])
def test_importances_are_drawn_as_they_are_told_with_a_caution_for_few_trials(n):
    study = study_with(*(done(float(k), x=1, y=2) for k in range(n)))
    shares = {"y": 0.5, "x": 0.25} | {f"z{k}": 0.01 for k in range(25)}
    (axes,) = figure_of(study, ONE, [["param_importances"]], importances=shares).axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    bars = dict(zip(names, (bar.get_width() for bar in axes.patches), strict=True))
    assert (bars["y"], bars["x"], len(bars)) == (50.0, 25.0, 13)
    assert bars["15 others"] == pytest.approx(15.0)
    caution = "importances from 29 trials are uncertain: 30 or more"
    assert (caution in axes.get_xlabel()) == (n == 29)


@pytest.mark.parametrize("n", [1, 3, 12])
@pytest.mark.parametrize("objectives", [ONE, TWO], ids=["one", "two"])
def test_charts_of_any_number_of_trials_are_readable(n, objectives):
    def trial(k):
        more = {"x": k % 3, "net": "[64,64]", "a.very.long.name_of_a_value": k / 7}
        return PRUNED if k % 4 == 3 and objectives is ONE else done(*[k] * len(objectives), **more)

    study = study_with(*map(trial, range(n)), objectives=objectives)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figure_of(study, objectives, importances={"x": 1.0})
        figure.draw_without_rendering()
    room, used = figure.bbox_inches, figure.get_tightbbox()
    assert room.x0 - 0.02 <= used.x0 < used.x1 <= room.x1 + 0.02
    assert room.y0 - 0.02 <= used.y0 < used.y1 <= room.y1 + 0.02
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    assert all(axes.get_legend() is None for axes in figure.axes)


def test_axes_have_the_scale_that_values_were_drawn_from():
    def objective(trial):
        trial.suggest_float("rate", 1e-5, 1e-1, log=True)
        trial.suggest_float("one_minus(gamma)", 1e-4, 1e-1, log=True)
        trial.suggest_int("log2(n_steps)", 5, 8)
        return trial.suggest_float("weight", 0.001, 1)

    figure = figure_of(study_of(objective), rows=[["slice"]])
    scales = {axes.get_xlabel(): axes.get_xscale() for axes in figure.axes}
    wanted = {"rate": "log", "gamma": "logit", "n_steps": "log", "weight": "linear"}
    assert scales == wanted


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
    assert rf"Study \$mine: {kind}" in texts
    assert not any("algo.hyperparams" in text for text in texts)
    assert OPTUNA_PLOTS[kind] is any("learning_rate" in text for text in texts)
    assert pyplot.get_fignums() == []
    assert pyplot.rcParams["axes.facecolor"] == facecolor


def test_a_plot_that_optuna_does_not_have_is_refused_with_a_suggestion(tmp_path):
    with pytest.raises(ConfigError, match="Did you mean 'contour'"):
        plot_study(drawn(named_study()), tmp_path / "out.png", "contours")


def test_values_of_some_trials_only_share_an_axis_with_those_of_all():
    figure = figure_of(study_with(done(5.0, x=1), done(4.0, x=2, y="a")), rows=[["slice"]])
    assert all(axes.get_ylim()[0] < 4 < 5 < axes.get_ylim()[1] for axes in figure.axes)


def test_names_that_would_be_cut_to_the_same_text_stay_whole():
    names = {f"{part}.a_very_long_name_of_a_value" for part in ("first", "other")}
    study = study_of(lambda trial: sum(trial.suggest_float(name, 0, 1) for name in names), 5)
    assert {axes.get_xlabel() for axes in figure_of(study, rows=[["slice"]]).axes} == names
