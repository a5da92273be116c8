"""What robot tasks pay for doing nothing, for random actions, and for not looking at the goal.

    python -m benchmarks.baselines [--tasks kuka_reach ...] [--runs FOLDER]

Each plays 20 episodes (seeds 0 to 19). FOLDER is the sweep of `rlzoo-plus benchmark --suite
robots`: with it, the best policy of its first seed also plays with a goal that never changes in
what it sees. The tables are those of benchmarks/results/baselines.md, which
tests/robots/test_baselines.py compares with what is played.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import yaml

import robots
from robots.vec_env import RobotVecEnv

CONF = Path(__file__).resolve().parents[1] / "conf" / "env"
EPISODES = 20
Act = Callable[[Any], Any]


class Played(NamedTuple):
    """What some episodes came to, in the order of their seeds."""

    returns: list[float]
    successes: list[bool]

    def row(self, name: str) -> str:
        """Return it as a row of a page's table."""
        low, mean, high = min(self.returns), np.mean(self.returns), max(self.returns)
        success = np.mean(self.successes)
        return f"| {name} | {mean:.1f} ({low:.1f} to {high:.1f}) | {success:.0%} |"


def settings() -> dict[str, dict[str, Any]]:
    """Return the shipped configuration of each robot task by its name."""
    found = {}
    for path in sorted(CONF.glob("[!_]*.yaml")):
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if data.get("id") in robots.ROBOT_IDS:
            found[path.stem] = data
    return found


def make(task: dict[str, Any], count: int) -> RobotVecEnv:
    """Return worlds of a task as it is shipped."""
    made = [gymnasium.make(task["id"], **(task.get("kwargs") or {})) for _ in range(count)]
    return RobotVecEnv([env.unwrapped for env in made])


def play(envs: RobotVecEnv, act: Act, seeds: Sequence[int]) -> Played:
    """Play one episode in each world.

    Args:
        envs: As many worlds as seeds.
        act: Returns the actions of all worlds for their observations.
        seeds: Of the episodes.
    """
    observation, _ = envs.reset(seed=list(seeds))
    returns, ends = np.zeros(len(seeds)), [None] * len(seeds)
    while None in ends:
        observation, reward, terminated, truncated, infos = envs.step(act(observation))
        for index, end in enumerate(ends):
            if end is None:
                returns[index] += reward[index]
                if terminated[index] or truncated[index]:
                    ends[index] = infos["final_info"]["is_success"][index]
    return Played(returns.tolist(), list(map(bool, ends)))


def nothing(envs: RobotVecEnv) -> Act:
    """Return a policy whose action is always zero."""
    return lambda _: np.zeros(envs.action_space.shape)


def anything(envs: RobotVecEnv) -> Act:
    """Return a policy whose actions are random."""
    rng = np.random.default_rng(0)
    return lambda _: rng.uniform(-1.0, 1.0, envs.action_space.shape)


def _middle(goal: Sequence[float]) -> Act:
    """Return a function that sees the same goal in all observations of a goal task."""

    def see(observation: dict[str, Any]) -> dict[str, Any]:
        shown = np.broadcast_to(np.float32(goal), observation["desired_goal"].shape)
        return {**observation, "desired_goal": shown.copy()}

    return see


def _ahead(observation: Any) -> Any:
    """See the goal of a drive at its mean distance, straight ahead."""
    seen = observation.copy()
    seen[..., :3] = (2.75, 1.0, 0.0)
    return seen


# What a policy that does not look at its goal sees in its place: the middle of all goals.
BLIND: dict[str, Act] = {
    "kuka_reach": _middle((0.5, 0.0, 0.45)),
    "franka_push": _middle((0.57, 0.0)),
    "husky_drive": _ahead,
    "racecar_drive": _ahead,
}


def blind(task: str, folder: Path) -> Act | None:
    """Return the best policy of a run, with a goal that never changes; None without a run."""
    from rlzoo_plus.runs.run import Run

    runs = sorted(path.parent for path in (folder / task).rglob("result.json"))
    if task not in BLIND or not runs:
        return None
    policy = Run.open(next((run for run in runs if run.name.endswith("-s0")), runs[0])).policy(
        "best"
    )
    return lambda observation: policy.predict(BLIND[task](observation))[0]


def main() -> None:
    """Play, and print a table for each task."""
    found = settings()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=found, default=list(found))
    parser.add_argument("--runs", type=Path, help="outputs/sweeps/benchmark-robots")
    options = parser.parse_args()
    for task in options.tasks:
        print(f"\n{task}\n\n| policy | return | success |\n|---|---|---|", flush=True)
        envs = make(found[task], EPISODES)
        players = {"zero action": nothing(envs), "random actions": anything(envs)}
        unseeing = options.runs and blind(task, options.runs)
        if unseeing:
            players["goal not seen"] = unseeing
        for name, act in players.items():
            print(play(envs, act, range(EPISODES)).row(name), flush=True)
        print(f"| solved from | {found[task]['solved_return']:g} | |")
        envs.close()


if __name__ == "__main__":
    main()
