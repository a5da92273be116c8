"""What native worlds save: stepped by the plugin, by Python, and their physics alone.

Our robots are stepped by `RobotVecEnv` in both ways, those of pybullet-envs-gymnasium by
`BulletBatch` or one by one. "Learner" is what Stable-Baselines3 sees, with monitors, and with the
resets of those that fall: the others go on.

All take the same actions from the same starts, in turn within one process, on one thread, timed in
processor time. "Physics" commands the motors and steps the worlds natively; it reads no sensor and
knows no task. The first resets are not timed. "Two threads" compares native steps on two threads
with those on one, timed by the clock: it needs a free core. Ratios are medians over the rounds.

    python -m benchmarks.native_worlds [--rounds 15] [--steps 40] [--worlds 16]
                                       [--ids HalfCheetah ...] [--out native_worlds.json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

import robots
from benchmarks.robots import make
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.envs.monitor import EpisodeMonitor
from rlzoo_plus.envs.robot_vec_env import BatchedRobots
from rlzoo_plus.runs.load import load
from robots.engines.bullet.native import STEP, NativeWorlds, Programs, part, program_of
from robots.engines.bullet.plugin import get_plugin
from robots.threads import THREADS, Threads
from robots.vec_env import RobotVecEnv
from robots.world import step_worlds

BULLET = (
    *("hopper", "walker2d", "halfcheetah", "ant", "humanoid", "humanoid_flagrun"),
    *("inverted_pendulum", "inverted_double_pendulum", "inverted_pendulum_swingup"),
    *("reacher", "pusher"),
)


@dataclass(frozen=True)
class Figures:
    """Median steps/s of all worlds together, and median ratios with the lowest and the highest."""

    native: float
    python: float
    physics: float
    native_to_python: tuple[float, float, float]
    native_to_physics: tuple[float, float, float]
    learner_to_physics: tuple[float, float, float]
    two_threads_to_one: tuple[float, float, float]


Play = tuple[Callable[[], Any], Callable[[Any], Any], list[Any]]
"""What starts a round, what takes a step, and what the steps are given."""


class Physics:
    """The motors and the physics of worlds, without sensors."""

    def __init__(self, env_id: str, n_worlds: int) -> None:
        self.venv = RobotVecEnv([make(env_id) for _ in range(n_worlds)])
        worlds = [env.world for env in self.venv.envs]
        programs = [
            [*(program_of(world)[0] or []), *part(STEP, world.simulation.calls)] for world in worlds
        ]
        clients = [world.simulation.client for world in worlds]
        self._programs = Programs(get_plugin(), clients, programs, n_numbers=0)

    def step(self, inputs: np.ndarray) -> None:
        """Advance by targets and strengths, shape (n_worlds, n_targets + n_robots)."""
        self._programs.run(inputs, threads=1)


def measure(env_id: str, rounds: int, steps: int, n_worlds: int) -> Figures:
    """Play the rounds in turn; the first is not counted, since it warms up."""
    native, python = (RobotVecEnv([make(env_id) for _ in range(n_worlds)]) for _ in range(2))
    by_plugin: Any = native._step_physics
    if not isinstance(getattr(by_plugin, "__self__", None), NativeWorlds):
        raise SystemExit(
            "The plugin cannot be used here: python -m robots.engines.bullet.plugin says why."
        )
    python._step_physics = partial(step_worlds, python._worlds)
    learner = BatchedRobots([lambda: EpisodeMonitor(make(env_id), None)] * n_worlds)
    physics = Physics(env_id, n_worlds)

    def plays(number: int) -> dict[str, Play]:
        native.action_space.seed(number)
        actions = [native.action_space.sample() for _ in range(steps)]
        inputs = _inputs(python, actions, number)
        return {
            "native": (partial(native.reset, seed=number), native.step_worlds, actions),
            "python": (partial(python.reset, seed=number), python.step_worlds, actions),
            "physics": (partial(physics.venv.reset, seed=number), physics.step, inputs),
            "learner": (partial(_reset, learner, number), learner.step, actions),
            "shared": (
                partial(native.reset, seed=number),
                _on_two(by_plugin.__self__.threads, native.step_worlds),
                actions,
            ),
        }

    found = _play(plays, rounds, n_worlds)
    for venv in (native, python, physics.venv, learner):
        venv.close()
    return found


def measure_bullet(name: str, rounds: int, steps: int, n_worlds: int) -> Figures:
    """Do the same with one of pybullet-envs-gymnasium, by the name of its configuration."""
    config = load([f"env={name}", "algo=ppo", f"n_envs={n_worlds}", "normalize=null", "tuned=none"])
    makers = {
        kind: make_train_env(config.model_copy(update={"vec_env": how}), 0)
        for kind, how in (("learner", "batched"), ("python", "dummy"), ("physics", "batched"))
    }
    for venv in makers.values():
        venv.reset()
    together, other = (makers[kind].unwrapped._batch for kind in ("learner", "physics"))
    alone = makers["python"].unwrapped.envs
    other.step_worlds(np.zeros((n_worlds, *alone[0].action_space.shape), np.float32))
    physics = other.physics_alone()

    def one_by_one(actions: np.ndarray) -> None:
        for env, action in zip(alone, actions, strict=True):
            env.unwrapped.step(action)

    def plays(number: int) -> dict[str, Play]:
        rng = np.random.default_rng(number)
        shape = (steps, n_worlds, *alone[0].action_space.shape)
        actions = list(rng.uniform(-1.0, 1.0, shape).astype(np.float32))
        inputs = [other.inputs(action).copy() for action in actions]
        run = partial(physics.run, threads=1)
        resets = {kind: partial(_reset, venv, number) for kind, venv in makers.items()}
        return {
            "native": (resets["learner"], together.step_worlds, actions),
            "python": (resets["python"], one_by_one, actions),
            "physics": (resets["physics"], run, inputs),
            "learner": (resets["learner"], makers["learner"].step, actions),
            "shared": (
                resets["learner"],
                _on_two(together._threads, together.step_worlds),
                actions,
            ),
        }

    found = _play(plays, rounds, n_worlds)
    for venv in makers.values():
        venv.close()
    return found


def _play(plays: Callable[[int], dict[str, Play]], rounds: int, n_worlds: int) -> Figures:
    rates: dict[str, list[float]] = {}
    by_clock: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        for name, (reset, step, given) in plays(number).items():
            reset()
            begun = time.process_time(), time.perf_counter()
            for one in given:
                step(one)
            took = time.process_time() - begun[0], time.perf_counter() - begun[1]
            for kept, seconds in zip((rates, by_clock), took, strict=True):
                kept.setdefault(name, []).append(n_worlds * len(given) / seconds)
    found = {name: values[1:] for name, values in rates.items()}
    return Figures(
        *(statistics.median(found[name]) for name in ("native", "python", "physics")),
        *(
            _ratio(found[first], found[second])
            for first, second in (("native", "python"), ("native", "physics"))
        ),
        _ratio(found["learner"], found["physics"]),
        _ratio(by_clock["shared"][1:], by_clock["native"][1:]),
    )


def _on_two(threads: Threads, step: Callable[[Any], Any]) -> Callable[[Any], None]:
    def on_two(actions: Any) -> None:
        threads.count = 2
        step(actions)
        threads.count = 1

    return on_two


def _reset(venv: VecEnv, seed: int) -> None:
    venv.seed(seed)
    venv.reset()


def _inputs(venv: RobotVecEnv, actions: list[Any], seed: int) -> list[np.ndarray]:
    """Return what the worlds are told by these actions."""
    told: list[np.ndarray] = []
    step = venv._step_physics
    n_robots = len(venv._worlds[0].robots)

    def note(targets: np.ndarray) -> Any:
        told.append(np.hstack([targets, np.ones((len(targets), n_robots))]))
        return step(targets)

    venv.reset(seed=seed)
    venv._step_physics = note
    for action in actions:
        venv.step_worlds(action)
    venv._step_physics = step
    return told


def _ratio(first: list[float], second: list[float]) -> tuple[float, float, float]:
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def main() -> None:
    """Measure, print a table and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=40, help="steps of each world in a round")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--ids", nargs="+", help="parts of the ids to measure; all if left out")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    ids = [*robots.ROBOT_IDS, *(f"{name}_bullet" for name in BULLET)]
    ids = [i for i in ids if options.ids is None or any(p in i for p in options.ids)]
    os.environ[THREADS] = "1"
    names = ("native / Python", "native / physics", "learner / physics", "two threads / one")
    print(f"| robot | native, steps/s | {' | '.join(names)} |")
    print("|---|---|---|---|---|---|")
    figures: dict[str, Any] = {}
    for env_id in ids:
        how = measure if env_id in robots.ROBOT_IDS else measure_bullet
        row = how(env_id, options.rounds, options.steps, options.worlds)
        ratios = (
            *(row.native_to_python, row.native_to_physics),
            *(row.learner_to_physics, row.two_threads_to_one),
        )
        cells = (f"{mid:.2f} ({low:.2f} to {high:.2f})" for mid, low, high in ratios)
        print(f"| {env_id} | {row.native:,.0f} | {' | '.join(cells)} |", flush=True)
        figures[env_id] = asdict(row)
    if options.out is not None:
        settings = {name: getattr(options, name) for name in ("rounds", "steps", "worlds")}
        text = json.dumps({**settings, "robots": figures}, indent=1)
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
