"""What our robots' environments cost: against bare physics, PyBullet's tasks and DummyVecEnv.

Three comparisons, all interleaved in one process and timed in processor time, so that a busy
machine disturbs them little: steps/s of every robot against its own physics alone (one command,
the physics steps, one read of the joints; no task, no Gymnasium) on the same trajectory; against
the task of like complexity in pybullet-envs-gymnasium; and many worlds in RobotVecEnv against as
Stable-Baselines3's DummyVecEnv, with the same actions. Ratios are medians over the rounds.

    python -m benchmarks.robots [--rounds 15] [--steps 500] [--worlds 16] [--ids HalfCheetah ...]
                                [--out robots.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3.common.vec_env import DummyVecEnv

import robots
from robots.env import BaseRobotEnv
from robots.vec_env import RobotVecEnv

# The task of pybullet-envs-gymnasium with about as many joints.
COUNTERPARTS = {
    "robots/CartPoleBalance-v0": "InvertedPendulumBulletEnv-v0",
    "robots/CartPoleSwingUp-v0": "InvertedPendulumSwingupBulletEnv-v0",
    "robots/DoublePendulum-v0": "InvertedDoublePendulumBulletEnv-v0",
    "robots/HalfCheetah-v0": "HalfCheetahBulletEnv-v0",
    "robots/A1Walk-v1": "AntBulletEnv-v0",
    "robots/Vision60Walk-v1": "AntBulletEnv-v0",
    "robots/KukaReach-v1": "ReacherBulletEnv-v0",
}
TARGETS = {
    ("physics", "robots/CartPoleBalance-v0"): 0.6,
    ("original", "robots/HalfCheetah-v0"): 1.5,
}
TITLES = {
    "physics": "each robot / its physics alone",
    "original": "each robot / task of pybullet-envs-gymnasium",
    "worlds": "RobotVecEnv / DummyVecEnv",
}

Round = Callable[[int], float]
"""Plays one round, seeded by its number, and returns its steps/s."""


@dataclass(frozen=True)
class Comparison:
    """Rates of two ways of stepping, measured in turn.

    Attributes:
        ours: Median steps/s of the first.
        theirs: Median steps/s of the second.
        ratio: Median over the rounds of first / second.
        low: Lowest ratio of a round.
        high: Highest ratio of a round.
    """

    ours: float
    theirs: float
    ratio: float
    low: float
    high: float


def compare(ours: Round, theirs: Round, rounds: int) -> Comparison:
    """Play the rounds in turn; the first one of each is not counted, since it warms up."""
    pairs = [(ours(number), theirs(number)) for number in range(rounds + 1)][1:]
    ratios = [a / b for a, b in pairs]
    first, second = (statistics.median(rates) for rates in zip(*pairs, strict=True))
    return Comparison(first, second, statistics.median(ratios), min(ratios), max(ratios))


def make(env_id: str) -> Any:
    """Return an environment without Gymnasium's wrappers, which cost both sides the same."""
    env = gymnasium.make(env_id, disable_env_checker=True).unwrapped
    # The first reset of PyBullet's tasks differs from later ones.
    env.reset(seed=0)
    return env


def random_actions(space: gymnasium.Space[Any], count: int, seed: int) -> list[Any]:
    """Return actions drawn from a space."""
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def rate_of_env(env: Any, steps: int) -> Round:
    """Time ``step`` alone over the episodes of random play."""

    def play(number: int) -> float:
        actions = random_actions(env.action_space, steps, number)
        env.reset(seed=number)
        spent = 0.0
        begun = time.process_time()
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                spent += time.process_time() - begun
                env.reset()
                begun = time.process_time()
        return steps / (spent + time.process_time() - begun)

    return play


def rate_of_physics(env: BaseRobotEnv, steps: int) -> Round:
    """Time the physics of the trajectory that ``rate_of_env`` plays."""
    robot, simulation = env.robot, env.simulation
    advance = robot.drive.advance
    read = simulation.joint_reader(robot.body, [joint.index for joint in robot.joints])

    def play(number: int) -> float:
        episodes = _commands(env, random_actions(env.action_space, steps, number), number)
        env.reset(seed=number)
        spent = 0.0
        for count, commands in enumerate(episodes):
            if count:
                env.reset()
            begun = time.process_time()
            for command in commands:
                advance(command)
                read()
            spent += time.process_time() - begun
        return steps / spent

    return play


def _commands(env: BaseRobotEnv, actions: Iterable[Any], seed: int) -> list[list[list[float]]]:
    """Return what the motors are told in each episode of random play."""
    episodes: list[list[list[float]]] = [[]]
    env.reset(seed=seed)
    for action in actions:
        choices = env.discrete_actions
        command = np.float64(action).clip(-1.0, 1.0) if choices is None else choices[action]
        episodes[-1].append(env.robot.drive.row_of_targets(command, env.state))
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
            episodes.append([])
    return episodes


def rate_of_worlds(step: Callable[[Any], Any], actions: list[Any], n_worlds: int) -> Round:
    """Time the steps of many worlds, with the resets between their episodes."""

    def play(number: int) -> float:
        del number
        begun = time.process_time()
        for action in actions:
            step(action)
        return n_worlds * len(actions) / (time.process_time() - begun)

    return play


def against_physics(env_id: str, steps: int, rounds: int) -> Comparison:
    """Compare an environment with its physics alone."""
    env, bare = make(env_id), make(env_id)
    result = compare(rate_of_env(env, steps), rate_of_physics(bare, steps), rounds)
    env.close()
    bare.close()
    return result


def against_original(env_id: str, steps: int, rounds: int) -> Comparison:
    """Compare an environment with the task of like complexity."""
    import pybullet_envs_gymnasium  # noqa: F401  Registers the ids.

    env, other = make(env_id), make(COUNTERPARTS[env_id])
    result = compare(rate_of_env(env, steps), rate_of_env(other, steps), rounds)
    env.close()
    other.close()
    return result


def worlds_together(env_id: str, steps: int, rounds: int, n_worlds: int) -> Comparison:
    """Compare the two ways of stepping many worlds."""
    together = RobotVecEnv([make(env_id) for _ in range(n_worlds)])
    singles = DummyVecEnv([lambda: make(env_id)] * n_worlds)
    together.reset(seed=0)
    singles.seed(0)
    singles.reset()
    draws = random_actions(together.action_space, max(1, steps // n_worlds), 0)
    result = compare(
        rate_of_worlds(together.step, draws, n_worlds),
        rate_of_worlds(singles.step, draws, n_worlds),
        rounds,
    )
    together.close()
    singles.close()
    return result


def table(kind: str, rows: Mapping[str, Comparison]) -> str:
    """Return the lines of a table in Markdown."""
    lines = [f"### {TITLES[kind]}, steps/s", ""]
    lines += ["| robot | first | second | ratio | lowest to highest |", "|---|---|---|---|---|"]
    for env_id, row in rows.items():
        name = f"{env_id} / {COUNTERPARTS[env_id]}" if kind == "original" else env_id
        wanted = TARGETS.get((kind, env_id))
        target = "" if wanted is None else f", at least {wanted:g} wanted"
        lines.append(
            f"| {name} | {row.ours:,.0f} | {row.theirs:,.0f} | {row.ratio:.2f}{target} | "
            f"{row.low:.2f} to {row.high:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure, print the tables and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=500, help="steps of a side in a round")
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--ids", nargs="+", help="parts of the ids to measure; all if left out")
    parser.add_argument("--out", type=Path, help="JSON file for the figures")
    options = parser.parse_args()
    ids = [i for i in robots.ROBOT_IDS if options.ids is None or any(p in i for p in options.ids)]
    steps, rounds = options.steps, options.rounds
    measures: dict[str, Callable[[str], Comparison]] = {
        "physics": lambda env_id: against_physics(env_id, steps, rounds),
        "original": lambda env_id: against_original(env_id, steps, rounds),
        "worlds": lambda env_id: worlds_together(env_id, 4 * steps, rounds, options.worlds),
    }
    figures: dict[str, Any] = {"rounds": rounds, "steps": steps, "worlds": options.worlds}
    for kind, measure in measures.items():
        chosen = [i for i in ids if kind != "original" or i in COUNTERPARTS]
        rows = {env_id: measure(env_id) for env_id in chosen}
        print(table(kind, rows), flush=True)
        figures[kind] = {env_id: asdict(row) for env_id, row in rows.items()}
    if options.out is not None:
        options.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
