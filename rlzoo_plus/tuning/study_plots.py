"""The plots of a study as files: a page with what says most, and plots that Optuna draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import pyplot

from rlzoo_plus.analysis.style import FAINT, INK, escaped, save_plot
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.study_charts import CHARTS, MOST_SLICES, OVERVIEW_ROWS, Drawn, charts_figure
from rlzoo_plus.tuning.trials import key_of, value_of
from rlzoo_plus.tuning.with_optuna import optuna

_SIZE_IN = (11.0, 7.0)
# Optuna's plots by the name of their function, and whether it takes a list of parameters.
OPTUNA_PLOTS = {"contour": True, "edf": False, "rank": True, "timeline": False}
OVERVIEW = "overview"
KINDS = (OVERVIEW, *CHARTS, *OPTUNA_PLOTS)


def plot_study(drawn: Drawn, out: Path, kind: str = OVERVIEW) -> Path:
    """Draw the overview of a study, or one of `KINDS`, as PNG, SVG or PDF; return the file."""
    if kind not in KINDS:
        raise ConfigError(unknown_name("plot", kind, KINDS))
    asked = OVERVIEW_ROWS if kind == OVERVIEW else [[kind]] if kind in CHARTS else []
    rows = [[name for name in row if CHARTS[name].is_known(drawn)] for row in asked]
    if any(rows):
        return save_plot(charts_figure(drawn, rows), out)
    if kind in CHARTS and drawn.done:
        needs = "several objectives" if kind == "pareto_front" else "more trials that differ"
        raise ConfigError(f"{drawn.title}: --kind {kind} needs {needs}. Use another --kind.")
    if kind in OPTUNA_PLOTS and drawn.done:
        return _plot_by_optuna(kind, drawn, out)
    raise ConfigError(f"{drawn.title}: no trial has a value yet. Let the study go on first.")


def _plot_by_optuna(kind: str, drawn: Drawn, out: Path) -> Path:
    """Let Optuna draw, which it does in the global state of pyplot, with a style of its own."""
    options: dict[str, Any] = {}
    names = dict(list(drawn.names.items())[:MOST_SLICES]) if OPTUNA_PLOTS[kind] else {}
    if names:
        options["params"] = list(names.values())
    if kind != "timeline":
        options["target_name"] = drawn.objectives[0]
        if len(drawn.objectives) > 1:
            options["target"] = lambda trial: trial.values[0]
    pyplot.switch_backend("agg")
    with pyplot.rc_context({"figure.constrained_layout.use": True}):
        getattr(optuna.visualization.matplotlib, f"plot_{kind}")(_renamed(drawn, names), **options)
        figure = pyplot.gcf()
        try:
            figure.set_size_inches(_SIZE_IN)
            figure.suptitle(escaped(f"{drawn.title}: {kind}"), color=INK)
            for axes in figure.axes:
                for place in ("center", "left"):
                    axes.set_title("", loc=place)
                axes.set_facecolor("white")
                axes.tick_params(grid_color=FAINT)
                for axis in (axes.xaxis, axes.yaxis):
                    if axis.get_scale() == "log":
                        axis.set_minor_formatter("")
            return save_plot(figure, out)
        finally:
            pyplot.close(figure)


def _renamed(drawn: Drawn, names: dict[str, str]) -> optuna.Study:
    """Return a copy of a study, in memory, of values instead of parameters, with short names."""
    copy = optuna.create_study(directions=drawn.study.directions)
    for trial in drawn.study.get_trials(deepcopy=True):
        shown = {name: names[key_of(name)] for name in trial.params if key_of(name) in names}
        trial.params, trial.distributions = (
            {label: value_of(name, trial.params[name]) for name, label in shown.items()},
            {label: _of_values(name, trial.distributions[name]) for name, label in shown.items()},
        )
        copy.add_trial(trial)
    return copy


def _of_values(
    name: str, params: optuna.distributions.BaseDistribution
) -> optuna.distributions.BaseDistribution:
    """Return the distribution of the values that a parameter's draws stand for."""
    numbers = (optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution)
    if key_of(name) == name or not isinstance(params, numbers):
        return params
    low, high = sorted((value_of(name, params.low), value_of(name, params.high)))
    if isinstance(params, optuna.distributions.IntDistribution):
        return optuna.distributions.IntDistribution(low, high, log=True)
    return optuna.distributions.FloatDistribution(low, high)
