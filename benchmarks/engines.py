"""How fast the physics engines step our robots.

Every robot is stepped by `RobotVecEnv`, as in training, with the same random actions on each
engine in turn within one process. The first ratio is for one thread, timed in processor time;
`--threads 2` is timed by the clock and needs free cores. Ratios are medians over the rounds.

    python -m benchmarks.engines [--worlds 1 16 64] [--rounds 5] [--steps 20] [--threads 1]
                                 [--ids robots/A1Walk-v1 ...] [--out engines.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from robots import ROBOT_IDS
from robots.engines import BULLET, ENGINES, MUJOCO
from robots.quiet import native_output_hidden
from robots.threads import THREADS
from robots.vec_env import RobotVecEnv


def compare(
    env_id: str, n_worlds: int, rounds: int, steps: int, clock: Callable[[], float]
) -> dict[str, float]:
    """Return steps/s on each engine, and how many times faster MuJoCo is."""
    envs = {name: _worlds(env_id, name, n_worlds) for name in ENGINES}
    taken: dict[str, list[float]] = {name: [] for name in envs}
    rng = np.random.default_rng(0)
    for number in range(rounds + 1):
        actions = [_actions(envs[BULLET], rng) for _ in range(steps)]
        for name, env in envs.items():
            began = clock()
            for action in actions:
                env.step(action)
            if number:  # The first round chooses threads and fills caches.
                taken[name].append(clock() - began)
    for env in envs.values():
        env.close()
    pairs = zip(taken[BULLET], taken[MUJOCO], strict=True)
    rates = {name: steps * n_worlds / statistics.median(times) for name, times in taken.items()}
    return {**rates, "ratio": statistics.median(a / b for a, b in pairs)}


def _worlds(env_id: str, engine: str, count: int) -> RobotVecEnv:
    with native_output_hidden():  # Bullet tells again and again what a file lacks.
        envs: list[Any] = [gymnasium.make(env_id, engine=engine).unwrapped for _ in range(count)]
        env = RobotVecEnv(envs)
    env.reset(seed=0)
    return env


def _actions(env: RobotVecEnv, rng: np.random.Generator) -> Any:
    space = env.single_action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        return rng.integers(space.n, size=env.num_envs)
    return rng.uniform(-0.5, 0.5, (env.num_envs, *(space.shape or ()))).astype(np.float32)


def main() -> None:
    """Measure the chosen robots, and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--ids", nargs="+", default=[i for i in ROBOT_IDS if "Camera" not in i])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    os.environ[THREADS] = str(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    print(
        f"| robot | worlds | {BULLET} steps/s | {MUJOCO} steps/s | ratio |\n|---|---|---|---|---|"
    )
    found = {}
    for env_id in options.ids:
        for count in options.worlds:
            row = compare(env_id, count, options.rounds, options.steps, clock)
            found[f"{env_id} {count}"] = row
            one, other, ratio = row[BULLET], row[MUJOCO], row["ratio"]
            print(f"| {env_id} | {count} | {one:,.0f} | {other:,.0f} | {ratio:.2f} |", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
