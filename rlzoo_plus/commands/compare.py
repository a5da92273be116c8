"""`rlzoo-plus compare`: whether runs of one variant score higher than those of another."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import combinations
from typing import Any

from rlzoo_plus.analysis.comparison_report import (
    ALL,
    CANNOT_TELL,
    NO,
    USUAL_MARGIN,
    YES,
    Pair,
    Report,
    Row,
    answer,
    compare_sides,
)
from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.analysis.scores import Side, Which, make_sides, measured_by, score_of
from rlzoo_plus.analysis.series import EVALUATION_RETURN, metric_keys
from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.commands.run_groups import RUNS_HELP, run_groups
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.envs.engine import trained_engine
from rlzoo_plus.errors import ConfigError, unknown_name

_EXIT = {YES: 0, NO: 1, CANNOT_TELL: 3}
_HEADS = ("environment", "first", "second", "difference", "95 %", "P(first higher)")
_MOST_SIDES = 30


def main(arguments: list[str]) -> int:
    """Print a table of the pairs, or JSON; return the gate's exit code."""
    options = _parse(arguments)
    which: Which = options.score
    metric: str = options.metric
    groups = run_groups(options.runs)
    _check_apart(groups)
    _check_metric(metric, groups)
    measured = {name: [measured_by(run, metric) for run in runs] for name, runs in groups.items()}
    sides, notes = make_sides(measured, which)
    _check_sides(sides, notes, options)
    _check_engines(sides)
    report = compare_sides(sides, which, metric)
    said, code = None, 0
    if options.gate is not None:
        margin = options.margin
        if margin is None:
            margin = USUAL_MARGIN if options.gate == "not-worse" else 0.0
        said = answer(report.pairs[0].normalised, options.gate, margin)
        code = _EXIT[said]
    if options.json:
        gate = None if said is None else {"gate": options.gate, "margin": margin, "answer": said}
        data: dict[str, Any] = {
            "score": which,
            "metric": metric,
            "sides": [_side_data(side, which) for side in sides],
        }
        data |= {**report.as_data(), "notes": notes, "gate": gate}
        print(json.dumps(finite(data), indent=2))
        return code
    for note in notes:
        print(note, file=sys.stderr)
    print("\n".join(_text(report, which, metric)))
    if said is not None:
        names = f"{report.pairs[0].first} {options.gate} than {report.pairs[0].second}"
        print(f"gate: {names}, margin {margin:g} of the normalised scale: {said}")
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "compare",
        "Compare variants: runs that differ in nothing but their seed are one side. Each pair gets "
        "the difference of the interquartile means with its 95 % interval, the probability that a "
        "run of the first scores higher than one of the second, a permutation test with Holm's "
        "correction for all pairs, and about how many more seeds would be needed. Unfinished "
        "runs do not count.",
        "outputs/sweeps/new outputs/sweeps/old --gate not-worse",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUNS", help=RUNS_HELP)
    score_help = "which evaluation of a run counts (default: %(default)s); best is too optimistic"
    add("--score", choices=["final", "best"], default="final", help=score_help)
    metric_help = "what an evaluation measured, e.g. success_rate (default: %(default)s)"
    add("--metric", default=EVALUATION_RETURN, metavar="KEY", help=metric_help)
    gate_help = "exit code 0 if the first of two sides is, 1 if it is not, 3 if that is not decided"
    add("--gate", choices=["not-worse", "better"], help=gate_help)
    margin_help = f"share of the normalised scale (default: {USUAL_MARGIN} for not-worse, else 0)"
    add("--margin", type=float, metavar="M", help=margin_help)
    add("--json", action="store_true", help="print JSON: every number, the runs that count")
    options = parser.parse_args(arguments)
    if options.margin is not None and not 0 <= options.margin < float("inf"):
        raise ConfigError(f"--margin {options.margin} must be at least 0. Use e.g. 0.05.")
    if options.margin is not None and options.gate is None:
        raise ConfigError("--margin is for --gate. Add --gate not-worse.")
    return options


def _check_apart(groups: dict[str, list[Any]]) -> None:
    paths = {name: {run.summary.path.resolve() for run in runs} for name, runs in groups.items()}
    for first, second in combinations(groups, 2):
        if both := paths[first] & paths[second]:
            raise ConfigError(
                f"{min(both)} is in {first} and in {second}. Compare sets without a common run."
            )


def _check_metric(metric: str, groups: dict[str, list[Any]]) -> None:
    if metric == EVALUATION_RETURN:
        return
    known = set().union(*(metric_keys(run.run) for runs in groups.values() for run in runs))
    if metric not in known:
        raise ConfigError(unknown_name("metric", metric, known))


def _check_sides(sides: list[Side], notes: list[str], options: argparse.Namespace) -> None:
    if len(sides) < 2 or (options.gate is not None and len(sides) != 2):
        found = ", ".join(side.name for side in sides) or "none"
        wanted = "exactly 2" if options.gate is not None else "at least 2"
        told = "".join(f"\n  {note}" for note in notes[:10])
        raise ConfigError(
            f"there are {len(sides)} sides with finished runs ({found}); {wanted} are needed. Name "
            f"the runs of each side.{told}"
        )
    if len(sides) > _MOST_SIDES:
        raise ConfigError(
            f"{len(sides)} sides make {len(sides) * (len(sides) - 1) // 2:,} pairs. Name the runs "
            f"of at most {_MOST_SIDES}."
        )


def _check_engines(sides: list[Side]) -> None:
    """Refuse runs of an environment that were not all trained with one physics engine."""
    found: dict[str, dict[str, list[str]]] = {}
    for side in sides:
        for env, by_seed in side.runs.items():
            for run in by_seed.values():
                env_id, asked = (run.values.get(key) for key in ("env.id", "env.kwargs.engine"))
                engine = trained_engine(run.run.read_provenance(), str(env_id), asked)
                if engine is not None:
                    name = engine.partition(" ")[0]
                    found.setdefault(env, {}).setdefault(name, []).append(side.name)
    for env, engines in found.items():
        if len(engines) > 1:
            names = (f"{name} ({', '.join(dict.fromkeys(by))})" for name, by in engines.items())
            raise ConfigError(
                f"the runs on {env} were trained with different physics engines: "
                f"{', '.join(names)}. Compare runs of one engine; `evaluate RUN "
                "env.kwargs.engine=...` plays a policy on the other."
            )


def _text(report: Report, which: Which, metric: str) -> list[str]:
    lines = []
    for pair in report.pairs:
        p = "" if pair.p_holm is None else f" (p {pair.p_holm:.2g} after Holm)"
        lines.append(f"{pair.first} against {pair.second}: {pair.decision}{p}{_seeds(pair)}")
        table = [_HEADS, *(_cells(row) for row in pair.rows)]
        lines += [f"  {line}" for line in aligned(table, _HEADS[1:])]
    what = "mean return" if metric == EVALUATION_RETURN else metric
    lines.append(f"Interquartile means over seeds of the {which} evaluation's {what}.")
    if len(report.scales) > 1:
        sources = ", ".join(f"{env}: {s.source}" for env, s in report.scales.items())
        lines.append(f"`{ALL}` is on a scale from 0 to 1 for each environment ({sources}).")
    else:
        (scale,) = report.scales.values()
        lines.append(f"Normalised scale: {scale.source}, {scale.zero:.4g} to {scale.one:.4g}.")
    return [*lines, *(f"note: {warning}" for warning in report.warnings)]


def _cells(row: Row) -> tuple[str, ...]:
    found = row.comparison
    interval = "-"
    if found.low is not None and found.high is not None:
        interval = f"[{found.low:+.4g}, {found.high:+.4g}]"
    means = f"{row.first:.4g} (n={found.n_first})", f"{row.second:.4g} (n={found.n_second})"
    return (row.env, *means, f"{found.difference:+.4g}", interval, f"{found.probability:.2f}")


def _seeds(pair: Pair) -> str:
    if pair.more_seeds == 0:
        return ""
    if pair.more_seeds is None:
        if pair.p_holm is None:
            return "; too few seeds"
        return "; if they differ, more than 200 seeds would be needed to show it"
    return f"; about {pair.more_seeds} more seeds a side would be needed"


def _side_data(side: Side, which: Which) -> dict[str, Any]:
    runs = {
        env: [
            {"seed": seed, "score": score_of(run, which), "path": str(run.summary.path)}
            for seed, run in by_seed.items()
        ]
        for env, by_seed in side.runs.items()
    }
    return {"name": side.name, "runs": runs}
