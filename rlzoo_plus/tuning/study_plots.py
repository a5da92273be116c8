"""The plots of a study: each as Optuna draws it, and a page with those that say most."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure

from rlzoo_plus.analysis.style import DPI, FAINT, INK, escaped, rendered, save_plot
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.trials import key_of, value_of
from rlzoo_plus.tuning.with_optuna import OptunaState, optuna

_SIZE_IN, _LONGEST_NAME = (11.0, 7.0), 24
# Optuna's plots by the name of their function, and whether it takes a list of parameters.
OPTUNA_PLOTS = {"contour": True, "edf": False, "parallel_coordinate": True, "rank": True}
OPTUNA_PLOTS |= {"slice": True, "timeline": False}
OVERVIEW = "overview"
# More of them would be too small to read.
_MOST_PARAMS, _MOST_LABELS = 4, 12
# Optuna takes minutes for thousands.
_MOST_NAMES = 50


@dataclass(frozen=True)
class Drawn:
    """What the plots of a study are made from."""

    title: str
    study: optuna.Study
    objectives: Sequence[str]  # Their names, in the order of a trial's values
    importances: Mapping[str, float] = field(default_factory=dict)  # Shares, the largest first

    @property
    def done(self) -> list[optuna.trial.FrozenTrial]:
        """The trials that have values."""
        return self.study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,))

    @property
    def names(self) -> dict[str, str]:
        """How each key that was drawn is called in a plot, the most important first."""
        drawn = (key_of(name) for trial in self.done for name in trial.params)
        names = {key: short_name(key) for key in dict.fromkeys([*self.importances, *drawn])}
        if len(set(names.values())) < len(names):
            return {key: printable(key, 200) for key in names}
        return names


def plot_study(drawn: Drawn, out: Path, kind: str = OVERVIEW) -> Path:
    """Draw the overview of a study, or one of `OPTUNA_PLOTS`, as a PNG and return the file."""
    if kind not in (OVERVIEW, *OPTUNA_PLOTS):
        raise ConfigError(unknown_name("plot", kind, [OVERVIEW, *OPTUNA_PLOTS]))
    kinds = _overview_kinds(drawn) if kind == OVERVIEW else [kind] if drawn.done else []
    if not kinds:
        raise ConfigError(f"{drawn.title}: no trial has a value yet. Let the study go on first.")
    study = _renamed(drawn)
    if kind != OVERVIEW:
        with _figure_of(kind, drawn, study) as figure:
            return save_plot(figure, out)
    width, height = _SIZE_IN
    page = Figure(figsize=(1.5 * width, 1.5 * height), dpi=DPI, layout="constrained")
    page.suptitle(escaped(drawn.title), fontsize=18, color=INK, fontweight="bold")
    for axes in page.subplots(2, 2).flat:
        axes.set_axis_off()
    for axes, each in zip(page.axes, kinds, strict=False):
        with _figure_of(each, drawn, study) as figure:
            axes.imshow(pyplot.imread(BytesIO(rendered(figure, "png"))))
    return save_plot(page, out)


def _overview_kinds(drawn: Drawn) -> list[str]:
    """Return the plots of the overview for which the study has values."""
    n_objectives, done = len(drawn.objectives), drawn.done
    is_reported = any(trial.intermediate_values for trial in drawn.study.get_trials(deepcopy=False))
    there = {
        "optimization_history": bool(done),
        "intermediate_values": n_objectives == 1 and is_reported,
        "pareto_front": bool(done) and n_objectives in (2, 3),
        "param_importances": bool(drawn.importances),
        "slice": bool(drawn.names),
    }
    return [kind for kind, is_there in there.items() if is_there]


@contextlib.contextmanager
def _figure_of(kind: str, drawn: Drawn, study: optuna.Study) -> Iterator[Figure]:
    """Let Optuna draw, which it does in the global state of pyplot, with a style of its own."""
    options: dict[str, Any] = {}
    if OPTUNA_PLOTS.get(kind):
        options["params"] = list(drawn.names.values())[:_MOST_PARAMS]
    if kind == "pareto_front":
        options["target_names"] = list(drawn.objectives)
    elif kind not in ("timeline", "intermediate_values"):
        options["target_name"] = drawn.objectives[0]
        if len(drawn.objectives) > 1:
            options["target"] = lambda trial: trial.values[0]
    pyplot.switch_backend("agg")
    with pyplot.rc_context({"figure.constrained_layout.use": True}):
        if kind == "param_importances":
            _draw_importances(drawn)
        else:
            getattr(optuna.visualization.matplotlib, f"plot_{kind}")(study, **options)
        figure = pyplot.gcf()
        try:
            figure.set_size_inches(_SIZE_IN)
            figure.suptitle(escaped(f"{drawn.title}: {kind.replace('_', ' ')}"), color=INK)
            for axes in figure.axes:
                for place in ("center", "left"):
                    axes.set_title("", loc=place)
                axes.set_facecolor("white")
                axes.tick_params(grid_color=FAINT)
                legend = axes.get_legend()
                if legend is not None and len(legend.get_texts()) > _MOST_LABELS:
                    legend.remove()
            yield figure
        finally:
            pyplot.close(figure)


def _draw_importances(drawn: Drawn) -> None:
    """Draw the shares as they are: Optuna's plot would rank the values, not what was drawn."""
    names = drawn.names
    shares = dict(itertools.islice(drawn.importances.items(), _MOST_LABELS))
    _, axes = pyplot.subplots()
    axes.barh([escaped(names[key]) for key in shares], [100.0 * share for share in shares.values()])
    axes.invert_yaxis()
    axes.set_xlabel(f"importance for {escaped(drawn.objectives[0])} [%]")


def _renamed(drawn: Drawn) -> optuna.Study:
    """Return a copy of a study, in memory, of values instead of parameters, with short names.

    Of very many parameters, it has the most important ones.
    """
    names = dict(itertools.islice(drawn.names.items(), _MOST_NAMES))
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


def short_name(name: str) -> str:
    """Return a parameter's name without `algo.hyperparams`, cut to a length."""
    text = printable(name.replace("algo.hyperparams.", ""), 200)
    return text if len(text) <= _LONGEST_NAME else "..." + text[-(_LONGEST_NAME - 3) :]
