"""What was identified: as a table, as JSON, as a configuration to train with, and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.analysis.style import DPI, FAINT, GREY, INK, PALETTE, save_plot
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.fitting import HELD, KNOWN, LATENCIES, NOT_TOLD, Estimate, Fit
from rlzoo_plus.identify.parameters import LATENCY

# A range to train with is no narrower than this, to either side of the value.
_LEAST_SPREAD = 0.05
_SHOWN_SEGMENTS, _MOST_PANELS = 12, 8
_LONGEST_LINE = 100


def table(fit: Fit) -> str:
    """Return the parameters as lines, and what the log cannot tell in words."""
    rows = [("parameter", "value", "95% interval", "the log")]
    for one in fit.estimates:
        # Without the log's word, it would be that of what was assumed.
        is_said = one.status != NOT_TOLD and one.low != one.high
        interval = f"{one.low:.4g} to {one.high:.4g}" if is_said else "-"
        said = one.status
        if one.given and said != NOT_TOLD:
            said += f" if {', '.join(one.given)} is nominal"
        rows.append((printable(one.parameter), f"{one.value:.4g}", interval, said))
    left = " or ".join(map(str, sorted(fit.latencies)))
    rows.append((LATENCY, str(fit.latencies[0]), left, fit.latency_status))
    return "\n".join([*aligned(rows, right=("value",)), *in_words(fit)])


def in_words(fit: Fit) -> list[str]:
    """Return what a log cannot tell, and how well the simulation follows it, a line each."""
    lines = []
    of_held: dict[str, list[str]] = {}
    for one in fit.estimates:
        for name in one.given:
            of_held.setdefault(printable(name), []).append(printable(one.parameter))
    for name, others in of_held.items():
        lines.append(
            f"{name} and {', '.join(others)} change the motion in the same way: the log tells only "
            f"their ratio, so {name} stays nominal and the others are relative to it. One that you "
            f"know decides it: --known {others[0]}=..."
        )
    unknown = [printable(one.parameter) for one in fit.estimates if one.status == NOT_TOLD]
    if unknown:
        lines.append(
            f"the log does not tell {', '.join(unknown)}: within this motion they change too "
            "little. They are left out of the range."
        )
    if fit.latency_status == NOT_TOLD:
        lines.append(
            "the log does not tell the latency: several fit as well. Log commands that change more."
        )
    low, nominal = fit.share.min(), fit.nominal_share.min()
    lines.append(
        f"the simulation explains {low:.1%} or more of each joint's motion, and the nominal robot "
        f"{max(nominal, 0.0):.1%}"
    )
    return lines


def data(fit: Fit) -> dict[str, Any]:
    """Return the same for JSON."""
    return {
        "parameters": [
            {
                **{"name": one.parameter.name, "joint": one.parameter.joint, "value": one.value},
                **{"low": one.low, "high": one.high, "status": one.status},
                "relative_to": list(one.given),
            }
            for one in fit.estimates
        ],
        "latency": {"values": list(fit.latencies), "status": fit.latency_status},
        "explained": fit.share.tolist(),
        "explained_nominally": fit.nominal_share.tolist(),
        "randomization": randomization(fit),
    }


def randomization(fit: Fit) -> dict[str, Any]:
    """Return `env.kwargs.randomization` for what was identified: three deviations either way."""
    found: dict[str, Any] = {}
    for one in fit.estimates:
        if one.status in (NOT_TOLD, HELD):
            continue
        if one.status == KNOWN and np.isclose(one.value, one.parameter.nominal):
            continue
        if one.parameter.joint is None:
            found[one.parameter.name] = _range(one)
        else:
            place = found.setdefault(one.parameter.name, {"joints": {}})
            place["joints"][one.parameter.joint] = _range(one)
    latencies = sorted(fit.latencies)
    if latencies != [0] and len(latencies) < LATENCIES:
        found[LATENCY] = {"choice": latencies} if latencies[1:] else latencies[0]
    return found


def _range(one: Estimate) -> Any:
    if one.status == KNOWN:
        return _rounded(one.value)
    low, high = one.wide
    low = min(low, one.value * (1 - _LEAST_SPREAD))
    high = max(high, one.value * (1 + _LEAST_SPREAD))
    return {"uniform": [_rounded(low), _rounded(high)]}


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def write(fit: Fit, out: Path, command: Sequence[str]) -> None:
    """Write the configuration, which `experiment=` takes.

    Raises:
        ConfigError: It cannot be written.
    """
    head = [
        "# @package _global_",
        f"# Identified by: {printable(' '.join(command), 300)}",
        "# Values, with their intervals of 95%:",
        *(f"#   {line}" for line in table(fit).splitlines()),
        "# Use: put it into a folder `experiment` in a folder of your own, and",
        f"# rlzoo-plus train --config-dir FOLDER experiment={out.stem} env=... as above",
    ]
    body = yaml.safe_dump(
        {"env": {"kwargs": {"randomization": randomization(fit)}}},
        sort_keys=False,
        default_flow_style=None,
        width=_LONGEST_LINE,
    )
    try:
        write_atomic(out, "\n".join(head) + f"\n\n{body}")
    except OSError as error:
        raise ConfigError(f"--out {printable(out)} cannot be written: {error.strerror}.") from error


def plot(fit: Fit, joints: Sequence[str], step_s: float, out: Path) -> Path:
    """Plot positions and velocities of the joints, as measured and as simulated.

    Raises:
        ConfigError: The file cannot be written.
    """
    measured = fit.segments.measured
    shown = min(_SHOWN_SEGMENTS, len(measured))
    panels = [(column, joint) for column, joint in enumerate(joints)][:_MOST_PANELS]
    figure = Figure(figsize=(12, 2.3 * len(panels) + 0.6), dpi=DPI, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(panels), 2, squeeze=False, sharex=True)
    times = np.arange(measured.shape[1]) * step_s
    for row, (column, joint) in zip(grid, panels, strict=True):
        for axes, number, what in zip(
            row, (column, len(joints) + column), ("position", "velocity"), strict=True
        ):
            for segment in range(shown):
                x = times + segment * measured.shape[1] * step_s
                first = segment == 0
                for values, look, label in (
                    (fit.nominal, {"color": GREY, "linewidth": 1.2}, "nominal robot"),
                    (fit.simulated, {"color": PALETTE[1], "linewidth": 2.0}, "as identified"),
                ):
                    axes.plot(x, values[segment, :, number], label=label if first else None, **look)
                look = {"color": INK, "marker": ".", "markersize": 4, "linestyle": ""}
                said = "measured" if first else None
                axes.plot(x, measured[segment, :, number], label=said, **look)
            axes.set_title(f"{joint} {what}", fontsize=11, color=INK, loc="left")
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color=FAINT)
    for axes in grid[-1]:
        axes.set_xlabel("time in segments [s]", fontsize=11, color=INK)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
    return save_plot(figure, out)
