"""Minutes until an evaluation first reaches 90 % of a published mean: ours and rl_zoo3's.

    python -m benchmarks.time_to_score [--cells ppo:reacher_bullet ...] [--tools rl_zoo3 ...]
                          [--cores 2] [--every 25000] [--episodes 50] [--steps N] [--save FILE.json]

One training after the other on the same cores, with the same values, seed and evaluations; each is
stopped when it has reached the score. The times are those at which its file of evaluations was
written, from the start of the process on. Ours evaluates on the same episodes each time, rl_zoo3 on
new ones: with a few, ours may have easy ones all the time (on the reacher, ten had 2 to 5 more than
100 others), so have many. --save puts the times into the results of the suite, for its page; cells
that are not measured keep theirs. Hours.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from benchmarks.processes import ROOT
from benchmarks.side_by_side.cases import Case
from benchmarks.side_by_side.tools import (
    FAST,
    HALF,
    OURS,
    ZOO_DEFAULT,
    ZOO_ONE,
    ZOO_VERSION,
    Tool,
    start,
    tools,
)
from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.runs.load import load
from rlzoo_plus.suites.suite_file import load_suite
from rlzoo_plus.suites.suite_results import Results, SideBySide

SUITE = "bullet"
# On-policy and off-policy, on the task that takes the fewest steps.
CELLS = (
    *("ppo:reacher_bullet", "a2c:reacher_bullet", "trpo:reacher_bullet"),
    *("sac:reacher_bullet", "td3:reacher_bullet", "tqc:reacher_bullet"),
)
TOOLS = (OURS, FAST, HALF, ZOO_DEFAULT, ZOO_ONE)
EVERY_STEPS, EPISODES = 25_000, 50
_LOOK_S, _PATIENCE_S = 0.5, 60.0


def main() -> None:
    """Train, print a line for each training, and save."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cells = {cell.name: cell for cell in load_suite(SUITE).cells if not cell.named_only}
    parser.add_argument("--cells", nargs="+", choices=cells, default=CELLS, metavar="CELL")
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=(OURS, ZOO_DEFAULT, ZOO_ONE))
    parser.add_argument("--cores", type=int, default=2, help="cores that each training may use")
    parser.add_argument("--steps", type=int, help="fewer steps, to try the script")
    parser.add_argument("--every", type=int, default=EVERY_STEPS, help="steps between evaluations")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="of each evaluation")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="results of the suite")
    options = parser.parse_args()
    cores = set(sorted(os.sched_getaffinity(0))[: options.cores])
    chosen = [tool for tool in tools() if tool.name in options.tools]
    about = f"{_about()}, {options.episodes} episodes every {options.every:,} steps"
    print("| cell | tool | score | minutes | steps |\n|---|---|---|---|---|", flush=True)
    for name in options.cells:
        cell = cells[name]
        assert cell.target is not None
        steps = options.steps or load(cell.words).n_timesteps
        case = Case(cell.algo, cell.env, 1, steps, saves=options.every, episodes=options.episodes)
        pair = SideBySide(
            cell=name, cores=len(cores), target=cell.target, minutes={}, steps={}, about=about
        )
        for tool in chosen:
            reached = reach(cell.target, tool, case, cores)
            minutes, step = (None, None) if reached is None else reached
            pair.minutes[tool.name], pair.steps[tool.name] = minutes, step
            shown = "not reached | -" if reached is None else f"{minutes:.2f} | {step:,}"
            print(f"| {name} | {tool.name} | {cell.target:.4g} | {shown} |", flush=True)
            # After each, because the next may take long.
            if options.save is not None:
                Results(options.save, SUITE).add(pair)


def reach(target: float, tool: Tool, case: Case, cores: set[int]) -> tuple[float, int] | None:
    """Train until an evaluation reaches a mean return; return minutes and step, or None.

    Raises:
        SystemExit: The training failed.
    """
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **tool.environ}
    with tempfile.TemporaryDirectory(prefix="time-to-score-") as text:
        folder = Path(text)
        place = folder / "work"
        place.mkdir()
        began = time.time()
        process = start(tool.train(case, case.steps, folder), place, variables, cores)
        try:
            while True:
                has_ended = process.poll() is not None
                if (found := _reached(place, target)) is not None:
                    written, step = found
                    return round((written - began) / 60, 2), step
                if has_ended:
                    break
                time.sleep(_LOOK_S)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if process.returncode:
            output = (place / "output.txt").read_text(errors="replace")[-3000:]
            raise SystemExit(f"{tool.name} failed:\n{output}")
    return None


def _reached(place: Path, target: float) -> tuple[float, int] | None:
    """Return when the evaluations of a training were written, and the step, if one has a return."""
    readers: dict[str, Callable[[Path], list[tuple[int, float]]]] = {
        "evaluations.jsonl": _evaluations_of_ours,
        "evaluations.npz": _evaluations_of_zoo,
    }
    for name, read in readers.items():
        for file in place.rglob(name):
            written = file.stat().st_mtime
            try:
                for step, mean in read(file):
                    if mean >= target:
                        return written, step
            except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile):
                # It is being written.
                continue
    return None


def _evaluations_of_ours(file: Path) -> list[tuple[int, float]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [(line["step"], line["mean_return"]) for line in lines]


def _evaluations_of_zoo(file: Path) -> list[tuple[int, float]]:
    with np.load(file) as arrays:
        means = arrays["results"].mean(axis=1).tolist()
        return list(zip(arrays["timesteps"].tolist(), means, strict=True))


def _about() -> str:
    processor = machine_fingerprint()["processor"]
    return f"{processor}, {datetime.now(UTC).date().isoformat()}, rl_zoo3 {ZOO_VERSION}"


if __name__ == "__main__":
    main()
