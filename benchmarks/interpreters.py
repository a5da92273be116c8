"""What a step costs this process and the clock, with and without `env.python`, in turn.

The processor time is that of this process alone, with all its threads, of one environment: that of
a batch is divided by the number of its rows. Leave the machine alone meanwhile.

    python -m benchmarks.interpreters [--python PATH] [--rounds 15] [--steps 300]
    python -m benchmarks.interpreters env=unity env.python=PATH env.kwargs.executable=BUILD
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any

import numpy as np

from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.runs.load import load

ENV = ("env=gym", "env.id=CartPole-v1")


def cases_of(python: str) -> dict[str, list[str]]:
    """Return the overrides of each case."""
    own = f"env.python={python}"
    return {
        "one, here": [*ENV, "n_envs=1"],
        "one, in a process": [*ENV, "n_envs=1", own],
        "eight, here": [*ENV, "n_envs=8"],
        "eight, in a process": [*ENV, "n_envs=8", own, "env.worlds_per_process=8"],
        "eight, in eight processes": [*ENV, "n_envs=8", own],
    }


def measured(venv: Any, actions: np.ndarray, n_steps: int) -> tuple[float, float]:
    """Return processor time and time of a step of one row [us]."""
    here, clock = time.process_time(), time.perf_counter()
    for _ in range(n_steps):
        venv.step(actions)
    taken = time.process_time() - here, time.perf_counter() - clock
    n_rows = n_steps * venv.num_envs
    return taken[0] / n_rows * 1e6, taken[1] / n_rows * 1e6


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="as env.python")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="one case, instead")
    options = parser.parse_intermixed_args()
    cases = {"these": options.overrides} if options.overrides else cases_of(options.python)
    venvs = {name: make_train_env(load(["algo=ppo", *words]), 0) for name, words in cases.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for name, venv in venvs.items():
        venv.reset()
        venv.action_space.seed(0)
        print(f"{name}: {venv.num_envs} rows", flush=True)
    for _ in range(options.rounds):
        for name, venv in venvs.items():
            actions = np.stack([venv.action_space.sample() for _ in range(venv.num_envs)])
            found[name].append(measured(venv, actions, options.steps))
    for name, times in found.items():
        here, clock = ([time[which] for time in times] for which in (0, 1))
        print(
            f"{name}: {min(here):.0f} us of this process a row (median "
            f"{statistics.median(here):.0f}), {statistics.median(clock):.0f} us by the clock"
        )
        venvs[name].close()


if __name__ == "__main__":
    main()
