"""Steps a second of one agent that is trained by one process, and by several: in turn.

Each round trains the same configuration with each number of processes, as a command does, in a
process of its own. The rate is that of the training alone, without imports. One process trains with
and without recorded updates, which several cannot use. Leave the machine alone meanwhile.

    python -m benchmarks.ranks [--rounds 3] [--processes 2,4] [--json FILE] [KEY=VALUE ...]
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

from benchmarks.processes import ONE_THREAD, ROOT
from robots.cores import machine_cores

WORDS = ("algo=ppo", "env=halfcheetah_bullet", "n_envs=16", "algo.hyperparams.batch_size=128")
_QUIET = (
    *("eval.every_steps=null", "checkpoint.every_minutes=null", "report.plot=false"),
    *("report.video=false", "log.tensorboard=false", "log.level=warning", "device=cpu"),
)


def cases(processes: list[int]) -> dict[str, tuple[str, ...]]:
    """Return the overrides of each case by its name."""
    several = {f"{n} processes": (f"distributed={n}",) for n in processes}
    return {"1 process": (), "1, not recorded": ("record_updates=false",), **several}


def rate_of(words: list[str]) -> float:
    """Train once; return environment steps a second."""
    with tempfile.TemporaryDirectory(prefix="rlzoo-ranks-benchmark-") as folder:
        path = Path(folder) / "run"
        command = [sys.executable, "-m", "rlzoo_plus", "train", *words, f"run_dir={path}"]
        environ = {**os.environ, **ONE_THREAD}
        subprocess.run(command, check=True, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL)
        result = json.loads((path / "result.json").read_text())
        return float(result["num_timesteps"] / result["training_time_s"])


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=65_536)
    own = [n for n in (2, 4) if n <= machine_cores()]
    parser.add_argument("--processes", type=_numbers, default=own, metavar="N[,N...]")
    parser.add_argument("--json", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    options = parser.parse_intermixed_args()
    words = [*WORDS, *_QUIET, f"n_timesteps={options.steps}", *options.overrides]
    # What is typed replaces what is usual.
    words = list({word.partition("=")[0]: word for word in words}.values())
    compared = cases(options.processes)
    found: dict[str, list[float]] = {name: [] for name in compared}
    for number in range(options.rounds):
        turn = list(compared.items())
        for name, more in turn if number % 2 == 0 else reversed(turn):
            found[name].append(rate_of([*words, *more]))
            print(f"round {number + 1}, {name}: {found[name][-1]:,.0f} steps/s", flush=True)
    base = statistics.median(found["1 process"])
    for name, rates in found.items():
        middle = statistics.median(rates)
        span = f"{min(rates):,.0f} to {max(rates):,.0f}"
        print(f"{name:<18} {middle:8,.0f} steps/s ({span})  {middle / base:.2f}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
