"""What one pass over many MuJoCo environments of Gymnasium saves.

Steps of `vec_env=batched`, which training uses by itself, against those one by one (`dummy`) and
against Gymnasium's `SyncVectorEnv`, which has no monitors and no checks for NaN. All take the same
actions in turn within one process. The first column is for one thread, timed in processor time;
"two threads" is timed by the clock against one thread: it needs a free core. Ratios are medians
over the rounds.

    python -m benchmarks.mujoco_worlds [--rounds 9] [--steps 60] [--worlds 16]
                                       [--ids Hopper-v5 ...] [--out mujoco_worlds.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.runs.load import load

IDS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")


def compare(env_id: str, n_worlds: int, rounds: int, steps: int) -> dict[str, float]:
    """Return steps/s and ratios, see above."""
    kinds = ("dummy", "batched")
    venvs: dict[str, Any] = {kind: _training(env_id, kind, n_worlds) for kind in kinds}
    venvs["sync"] = gym.make_vec(env_id, num_envs=n_worlds, vectorization_mode="sync")
    space: Any = venvs["dummy"].action_space
    shape = (steps, n_worlds, *space.shape)
    actions = np.random.default_rng(0).uniform(space.low, space.high, shape).astype(np.float32)
    threads = venvs["batched"].unwrapped._batch._threads
    threads._times, threads.count = {}, 1
    for venv in venvs.values():
        venv.reset()
        _time(venv, actions, time.process_time)
    taken: dict[str, list[float]] = {name: [] for name in (*venvs, "one", "two")}
    for _ in range(rounds):
        for name, venv in venvs.items():
            taken[name].append(_time(venv, actions, time.process_time))
        for name, threads.count in (("one", 1), ("two", 2)):
            taken[name].append(_time(venvs["batched"], actions, time.perf_counter))
        threads.count = 1
    for venv in venvs.values():
        venv.close()

    def ratio(slow: str, fast: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[slow], taken[fast], strict=True))

    return {
        "steps_per_s": steps * n_worlds / statistics.median(taken["batched"]),
        "to_dummy": ratio("dummy", "batched"),
        "to_sync": ratio("sync", "batched"),
        "two_threads_to_one": ratio("one", "two"),
    }


def _training(env_id: str, kind: str, n_worlds: int) -> Any:
    chosen = [f"env={env_id}", "algo=ppo", f"n_envs={n_worlds}", f"vec_env={kind}"]
    return make_train_env(load([*chosen, "normalize=false"]), 0)


def _time(venv: Any, actions: np.ndarray, clock: Callable[[], float]) -> float:
    began = clock()
    for action in actions:
        venv.step(action)
    return clock() - began


def main() -> None:
    """Measure the chosen environments, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--ids", nargs="+", default=IDS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    print(f"{'':16}{'steps/s':>9}{'to dummy':>10}{'to sync':>10}{'2 threads':>10}")
    found = {}
    for env_id in options.ids:
        found[env_id] = row = compare(env_id, options.worlds, options.rounds, options.steps)
        rate, *ratios = row.values()
        shown = "".join(f"{each:10.2f}" for each in ratios)
        print(f"{env_id:16}{rate:9,.0f}{shown}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
