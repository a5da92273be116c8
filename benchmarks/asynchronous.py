"""Steps a second with and without `asynchronous`, in turn, and the ratio of both.

Each round trains the same job once with one process and once with two, as a command does, and in
the other order in the next round. Both have the same torch threads, so that what is compared is
collecting beside learning. The rate is that of the training alone, without imports. Leave the
machine alone meanwhile. `--returns` trains whole runs instead, and prints their final evaluations.

    python -m benchmarks.asynchronous [--rounds 3] [--steps 10000] [--json FILE] [KEY=VALUE ...]
    python -m benchmarks.asynchronous --returns --seeds 5 --steps 30000 algo=sac env=cartpole_bullet
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.processes import ONE_THREAD, ROOT

WORDS = ("algo=sac", "env=halfcheetah_bullet", "num_threads=1")
CASES = {"one process": (), "asynchronous": ("asynchronous=true",)}
_QUIET = (
    *("checkpoint.every_minutes=null", "report.plot=false", "report.video=false"),
    *("log.tensorboard=false", "log.level=warning", "device=cpu"),
)


def result_of(words: list[str]) -> dict[str, Any]:
    """Train once; return the result, with the medians of what the learner logged."""
    with tempfile.TemporaryDirectory(prefix="rlzoo-asynchronous-") as folder:
        path = Path(folder) / "run"
        command = [sys.executable, "-m", "rlzoo_plus", "train", *words, f"run_dir={path}"]
        environ = {**os.environ, **ONE_THREAD}
        subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        lags = [row["value"] for row in rows if row["key"] == "learner/policy_lag_updates"]
        result = json.loads((path / "result.json").read_text())
        return {**result, "lag": statistics.median(lags) if lags else 0.0}


def measure_rates(words: list[str], rounds: int) -> dict[str, list[float]]:
    """Train each case in turn; return the steps a second of each round."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for number in range(rounds):
        turn = list(CASES.items())
        for name, more in turn if number % 2 == 0 else reversed(turn):
            result = result_of([*words, "eval.every_steps=null", *more])
            found[name].append(result["num_timesteps"] / result["training_time_s"])
            lag = f", policy lag {result['lag']:.0f} updates" if more else ""
            print(f"round {number + 1}, {name}: {found[name][-1]:,.0f} steps/s{lag}", flush=True)
    ratios = [b / a for a, b in zip(*found.values(), strict=True)]
    print(f"asynchronous / one process: {statistics.median(ratios):.2f} (median of {ratios})")
    return found


def measure_returns(words: list[str], seeds: int) -> dict[str, list[float]]:
    """Train each case with each seed; return the mean returns of the final evaluations."""
    found: dict[str, list[float]] = {name: [] for name in CASES}
    for seed in range(seeds):
        for name, more in CASES.items():
            result = result_of([*words, f"seed={seed}", "eval.episodes=20", *more])
            found[name].append(result["final"]["mean_return"])
            print(f"seed {seed}, {name}: {found[name][-1]:.1f}", flush=True)
    for name, returns in found.items():
        spread = statistics.stdev(returns) if len(returns) > 1 else 0.0
        print(f"{name}: {statistics.mean(returns):.1f} +- {spread:.1f} over {len(returns)} seeds")
    return found


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--returns", action="store_true", help="compare returns, not rates")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_intermixed_args()
    words = [*WORDS, *_QUIET, f"n_timesteps={options.steps}", *options.overrides]
    # What is typed replaces what is usual.
    words = list({word.partition("=")[0]: word for word in words}.values())
    if options.returns:
        found = measure_returns(words, options.seeds)
    else:
        found = measure_rates(words, options.rounds)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
