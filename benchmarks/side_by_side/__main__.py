"""Our manager, rl_zoo3 and plain Stable-Baselines3 side by side: time, processor time, memory.

    python -m benchmarks.side_by_side [--cases "ppo CartPole" help ...] [--rounds 3] [--cores 1]
                                      [--save benchmarks/results/side_by_side.json]

Each round runs every tool once, in another order each time, as whole processes on the same cores,
with the same environment, values and steps; ours also with `fast=true` and, off-policy, with
`fast=bfloat16`. A training is measured twice: the whole of it, and the shortest one, which is the
start-up; training alone is the difference. rl_zoo3 is measured as it comes and with one thread; the
better of both counts, and in a sweep the latter. It gets a virtual environment of its own, below
build/, with the same versions.

--save writes after each case and keeps the other cases of the file, so that a measurement of hours
may be made in parts; each case has its own date, commit and number of rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.processes import ROOT
from benchmarks.side_by_side import tools as tools_module
from benchmarks.side_by_side.cases import CASES, Case, write_sb3_file
from benchmarks.side_by_side.tools import (
    FAST,
    HALF,
    OURS,
    SB3,
    ZOO_DEFAULT,
    ZOO_ONE,
    Took,
    Tool,
    run,
)

HELP, FIRST_STEP, SWEEP, LIMITS = "help", "first step", "sweep", "limits"
# Off-policy, a training may have one step alone.
_FIRST_STEP = Case("sac", "halfcheetah_bullet", 1, 1)
_SWEEP, _JOBS, _AT_ONCE = Case("ppo", "cartpole", 256, 20_000), 8, 2
_LIMITS = ("ppo HalfCheetah", "a2c HalfCheetah", "ppo CartPole")
_LIMITS += ("sac HalfCheetah", "td3 HalfCheetah", "tqc HalfCheetah")
_EXTRAS = (HELP, FIRST_STEP, SWEEP, LIMITS)
# Algorithms for which fast=bfloat16 is more than fast=true.
_ROUNDING = ("sac", "td3", "tqc")
# By tool and metric, one value a round.
Found = dict[str, dict[str, list[float]]]


class Measured(TypedDict):
    """A case, and the machine, versions and number of rounds of its measurement."""

    about: dict[str, Any]
    tools: Found


def main() -> None:
    """Measure what was asked for, print a table, and save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", nargs="+", choices=[*CASES, *_EXTRAS], metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=1, help="cores that each tool may use")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args()
    cores = set(sorted(os.sched_getaffinity(0))[: options.cores])
    everything = tools_module.tools()
    results: dict[str, Measured] = {}
    if options.save is not None and options.save.exists():
        results = json.loads(options.save.read_text(encoding="utf-8"))
    about = _machine(cores) | {"rounds": options.rounds}
    for name in options.cases or [*CASES, *_EXTRAS]:
        found: Found = {}
        for number in range(options.rounds):
            _round(name, number, everything, cores, found)
        results[name] = {"about": about, "tools": found}
        print(f"{name}: {_summary(found)}", flush=True)
        if options.save is not None:
            options.save.parent.mkdir(parents=True, exist_ok=True)
            text = json.dumps(results, indent=1) + "\n"
            options.save.write_text(text, encoding="utf-8")
    print(f"\n{about}\n\n{table(results)}")


def _round(name: str, number: int, everything: list[Tool], cores: set[int], found: Found) -> None:
    """Run every tool once; add what it took to `found`, by tool and metric."""
    turn = number % len(everything)
    for tool in everything[turn:] + everything[:turn]:
        measured = _measure(name, tool, cores)
        for metric, value in measured.items():
            found.setdefault(tool.name, {}).setdefault(metric, []).append(round(value, 3))


def _measure(name: str, tool: Tool, cores: set[int]) -> dict[str, float]:
    if name == HELP:
        return {"whole": run([tool.help], tool.environ, cores).wall_s} if tool.help else {}
    if name == SWEEP:
        # As rl_zoo3 comes, two jobs at once each have a thread for every core: minutes for one.
        return {"whole": _sweep(tool)} if tool.name in (OURS, ZOO_ONE) else {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if name == LIMITS:
            return _limits(folder, cores) if tool.name == SB3 else {}
        if name == FIRST_STEP:
            if tool.name in (FAST, HALF):
                return {}
            took = run([tool.train(_FIRST_STEP, 1, folder)], tool.environ, cores)
            return {"whole": took.wall_s, "memory": took.memory_mib}
        case = CASES[name]
        if tool.name == HALF and case.algo not in _ROUNDING:
            return {}

        def train(steps: int) -> Took:
            return run([tool.train(case, steps, folder)], tool.environ, cores)

        whole, start = train(case.steps), train(case.first)
    return {
        "training": whole.wall_s - start.wall_s,
        "training, processor": whole.cpu_s - start.cpu_s,
        "whole": whole.wall_s,
        "start": start.wall_s,
        "memory": whole.memory_mib,
    }


def _sweep(tool: Tool) -> float:
    """Return the time of eight trainings, two at a time, on all cores [s]."""
    cores = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        if tool.name == OURS:
            command = tool.train(_SWEEP, _SWEEP.steps, folder)
            command += ["-m", f"seed=range(0,{_JOBS})", f"infra.workers={_AT_ONCE}"]
            return run([command], tool.environ, cores).wall_s
        # Two shells, each with half of the seeds: rl_zoo3 has no sweeps.
        command = tool.train(_SWEEP, _SWEEP.steps, folder)
        at = command.index("--seed") + 1
        queues = []
        for queue in range(_AT_ONCE):
            each = [
                [*command[:at], str(seed), *command[at + 1 :], "--log-folder", f"logs{seed}"]
                for seed in range(queue, _JOBS, _AT_ONCE)
            ]
            program = f"import subprocess; [subprocess.run(c, check=True) for c in {each!r}]"
            queues.append([sys.executable, "-c", program])
        return run(queues, tool.environ, cores).wall_s


def _limits(folder: Path, cores: set[int]) -> dict[str, float]:
    """Return the time of physics and of products for some cases, without start-up [s].

    Products are made on one thread and on as many as there are cores; the better one counts.
    """
    found = {}
    for name in _LIMITS:
        case = CASES[name]
        file = write_sb3_file(case, folder)
        found[f"{name}: physics"] = _limit("physics", case, file, 1, cores)
        for what in ("products", *(["bfloat16"] if case.algo in _ROUNDING else [])):
            times = [_limit(what, case, file, threads, cores) for threads in {1, len(cores)}]
            found[f"{name}: {what}"] = min(times)
    return found


def _limit(what: str, case: Case, file: Path, threads: int, cores: set[int]) -> float:
    command = [sys.executable, str(Path(__file__).with_name("limits.py")), what, str(file)]
    whole, first = (
        run([[*command, str(steps), str(threads)]], {}, cores).wall_s
        for steps in (case.steps, case.first)
    )
    return whole - first


def table(results: Mapping[str, Measured]) -> str:
    """Return the cases as Markdown: medians, and medians of ratios with the lowest and highest."""
    found = {name: measured["tools"] for name, measured in results.items()}
    limits = found.pop(LIMITS, {}).get(SB3, {})
    lines = [
        "| case | ours [s] | fast=true [s] | fast=bfloat16 [s] | rl_zoo3 [s] | SB3 [s] "
        "| rl_zoo3 / ours | rl_zoo3 / fast=true | rl_zoo3 / fast=bfloat16 "
        "| shortest training: ours / rl_zoo3 | memory: ours / rl_zoo3 |",
        f"|{'---|' * 11}",
    ]
    for name, tools in found.items():
        metric = _time_of(tools)
        zoo = _best(tools, metric)
        cells = [name, *(_median(tools, tool, metric) for tool in (OURS, FAST, HALF, zoo, SB3))]
        cells += [_ratio(tools, metric, zoo, own) for own in (OURS, FAST, HALF)]
        for other in ("start", "memory"):
            cells.append(_ratio(tools, other, OURS, _best(tools, other)))
        lines.append(f"| {' | '.join(cells)} |")
    if limits:
        lines += ["", "| limit | [s] |", "|---|---|"]
        lines += [f"| {name} | {statistics.median(s):.1f} |" for name, s in limits.items()]
    return "\n".join(lines)


def _time_of(found: Found) -> str:
    """Return the metric of time of a case: what is no training has only the whole."""
    return "training" if "training" in found[OURS] else "whole"


def _best(found: Found, metric: str) -> str:
    """Return the setting of rl_zoo3 with the lower median."""

    def median(name: str) -> float:
        return statistics.median(found.get(name, {}).get(metric, [math.inf]))

    return min(ZOO_DEFAULT, ZOO_ONE, key=median)


def _median(found: Found, tool: str, metric: str) -> str:
    values = found.get(tool, {}).get(metric)
    return "-" if values is None else f"{statistics.median(values):.1f}"


def _ratio(found: Found, metric: str, first: str, second: str) -> str:
    above, below = (found.get(name, {}).get(metric) for name in (first, second))
    if above is None or below is None:
        return "-"
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def _summary(found: Found) -> str:
    if OURS not in found:
        return ", ".join(f"{n} {statistics.median(s):.1f} s" for n, s in found[SB3].items())
    metric = _time_of(found)
    return f"{metric} " + ", ".join(f"{tool} {_median(found, tool, metric)}" for tool in found)


def _machine(cores: set[int]) -> dict[str, Any]:
    from rlzoo_plus.artifacts.provenance import machine_fingerprint

    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": str(machine_fingerprint()["processor"]),
        "cores": len(cores),
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "stable-baselines3", "rlzoo-plus")},
        "rl_zoo3": tools_module.ZOO_VERSION,
        "commit": commit.strip(),
    }


if __name__ == "__main__":
    main()
