"""What `profile=true` costs a training, and how much of its time the phases cover.

    python -m benchmarks.profile_cost [--rounds 5] [--steps 40960] [--cases ppo:cartpole ...]

Trainings with and without it follow each other in one process and one thread; the order changes
with each round. Prints the ratio of processor times and the sum of the phases over the time on the
clock, median with the lowest and the highest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import rlzoo_plus as rz

CASES = ("ppo:cartpole", "ppo:halfcheetah_bullet", "sac:pendulum")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="default: 40960, off-policy 3000")
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="ALGO:ENV")
    options = parser.parse_args()
    print("| case | processor time with / without | phases / time |\n|---|---|---|")
    for case in options.cases:
        algo, _, env = case.partition(":")
        steps = options.steps or (3_000 if algo in ("sac", "td3", "tqc") else 40_960)
        _train(algo, env, steps // 4, profile=True)  # what is made once
        ratios, covered = [], []
        for number in range(options.rounds):
            took = {}
            for profile in (False, True) if number % 2 else (True, False):
                took[profile], phases = _train(algo, env, steps, profile=profile)
                covered += [phases] if profile else []
            ratios.append(took[True] / took[False])
        print(f"| {case} | {_shown(ratios)} | {_shown(covered)} |", flush=True)


def _train(algo: str, env: str, steps: int, *, profile: bool) -> tuple[float, float]:
    """Return the processor time of a training [s], and the share of it that phases cover."""
    with tempfile.TemporaryDirectory() as folder:
        words = [f"algo={algo}", f"env={env}", "eval.every_steps=null", "device=cpu"]
        words += ["report.plot=false", "report.video=false", "num_threads=1"]
        before = time.process_time()
        rz.train(*words, n_timesteps=steps, profile=profile, run_dir=f"{folder}/run", quiet=True)
        took = time.process_time() - before
        if not profile:
            return took, 0.0
        found = json.loads((Path(folder) / "run" / "profile" / "phases.json").read_text())
        return took, sum(found["phases"].values()) / found["seconds"]


def _shown(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


if __name__ == "__main__":
    main()
