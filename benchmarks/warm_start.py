"""What a warm start gains: the A1 walker with 1.3 times the mass, from the shipped task's policy.

    nice -n 19 python -m benchmarks.warm_start [--seeds 0 1 2] [--steps N] [--workers 1]
                                               [--out FOLDER]

Trains the shipped task once (another seed), then the heavier walker from scratch and from that
policy, for each seed, one thread a run; runs that are there already are not trained again. Prints
the environment steps until an evaluation's mean return reaches the threshold of the task, and
writes warm_start.json into the folder and, for the whole length, into benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.trained import config_of, curve_of, train_seeds

RESULTS = Path(__file__).parent / "results" / "warm_start.json"
TASK = ["algo=ppo", "env=a1_walk", "report.video=false", "report.plot=false"]
HEAVIER = "env.kwargs.randomization={mass: 1.3}"
# Of the source; the seeds compared are others.
SOURCE_SEED = 100
STEPS, EVALUATED_EVERY = 204_800, 10_240
HEADER = """\
| begins | steps to the threshold, each seed | return at step 0 | best return, each seed |
|---|---|---|---|"""


def main() -> None:
    """Train what is missing, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("outputs/warm_start"))
    options = parser.parse_args()
    length = [f"n_timesteps={options.steps}"]
    source = train_seeds(options.out / "source", [SOURCE_SEED], 1, [*TASK, *length])[0]
    watched = [*TASK, *length, HEAVIER, "eval.at_start=true", "eval.episodes=10"]
    watched.append(f"eval.every_steps={min(EVALUATED_EVERY, options.steps)}")
    kinds = {"from scratch": [], "from the shipped task": [f"init_from={source}"]}
    report: dict[str, Any] = {"steps": options.steps, "seeds": options.seeds}
    print(HEADER, flush=True)
    for kind, begins in kinds.items():
        folder = options.out / kind.replace(" ", "_")
        runs = train_seeds(folder, options.seeds, options.workers, [*watched, *begins])
        threshold = config_of(runs[0])["env"]["solved_return"]
        report["threshold"] = threshold
        report[kind] = [_figures(run, threshold) for run in runs]
        print(_row(kind, report[kind]), flush=True)
    for path in (options.out / "warm_start.json", *([RESULTS] if options.steps == STEPS else ())):
        path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _figures(run: Path, threshold: float) -> dict[str, Any]:
    curve = curve_of(run)
    reached = [step for step, value in curve if value >= threshold]
    return {"steps_to_threshold": reached[0] if reached else None, "curve": curve}


def _row(kind: str, runs: list[dict[str, Any]]) -> str:
    steps = [run["steps_to_threshold"] for run in runs]
    reached = ", ".join("not reached" if step is None else f"{step:,}" for step in steps)
    first = fmean(run["curve"][0][1] for run in runs)
    best = ", ".join(f"{max(value for _, value in run['curve']):.0f}" for run in runs)
    return f"| {kind} | {reached} | {first:.0f} | {best} |"


if __name__ == "__main__":
    main()
