"""Do the trained quadrupeds do what they are told: commanded against measured velocity, and gait.

    python -m benchmarks.tracking [RUN|SWEEP ...] [--episodes 100] [--out tracking.json]

Without runs, those of `rlzoo-plus benchmark --suite robots`. For each,
the best policy is given a grid of commands (forward, sideways and turn together), each for the time
that the task gives one, in shuffled order. Printed are the mean velocity after settling, and the
slope of the regression of the measured on the commanded velocity, for each axis; then what the
policy scores on held-out episodes, what it scores when the command that it sees is frozen at the
middle of the ranges, what doing nothing scores, what strides in proportion to the command score
without any correction, and the most that any policy can score that does not see its command. Of
the gait: slip of the feet that touch the ground, touchdowns of a foot in a cycle of the clock, and
torques and joint velocities against the data sheets.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from benchmarks.trained import config_of
from robots.follow_velocity import (
    SETTLING_S,
    CommandRanges,
    FollowVelocity,
    following,
    foot_slip,
)
from robots.quadruped import NO_GAIT, QuadrupedEnv
from robots.vec_env import RobotVecEnv

AXES = ("forward", "sideways", "turn")
UNITS = ("m/s", "m/s", "rad/s")
GRID = (7, 3, 5)
"""How many values of each axis."""
COMMAND = slice(9, 12)
"""Where the observation has the command."""
STRIDES = {
    "robots/A1Walk-v1": (1.0, 1.6, 0.66),
    "robots/Vision60Walk-v1": (0.68, 1.0, 0.63),
}
"""Strides for a command of 1 m/s, 1 m/s and 1 rad/s, found by hand."""
WORLDS = 15
# Of held-out episodes: far from the seeds of training and evaluation.
FIRST_SEED = 7_000_000

Actor = Callable[[NDArray[np.float32]], NDArray[np.floating[Any]]]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Schedule(CommandRanges):
    """Commands in a given order instead of drawn ones."""

    fixed: Any = None

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Return the commands, shape (count, 3)."""
        del rng
        commands: Floats = np.array(self.fixed[:count], np.float64)
        return commands


def main() -> None:
    """Play what was trained, print the tables, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tracking.json"))
    options = parser.parse_args()
    suite = Path("outputs/sweeps/benchmark-robots")
    folders = options.runs or [suite / task for task in ("a1_walk", "vision60_walk")]
    runs = [file.parent for folder in folders for file in sorted(folder.rglob("result.json"))]
    if not runs:
        where = ", ".join(map(str, folders))
        parser.error(f"no runs in {where}. Name some, or train them with rlzoo-plus benchmark.")
    report = [of_run(run, options.episodes) for run in runs]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    for table in (tracking_table, blind_table, gait_table, axis_table):
        print("\n".join(table(report)), "\n")


def of_run(run: Path, episodes: int) -> dict[str, Any]:
    """Return all numbers of one run."""
    from rlzoo_plus.runs.run import load_policy  # Takes torch, which a bound alone does not need.

    config = config_of(run)
    env = {"id": config["env"]["id"], **(config["env"]["kwargs"] or {})}
    env_id, has_trot = env["id"], env.get("gait") != NO_GAIT
    policy = load_policy(run)

    def acts(observation: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        return policy.predict(observation)[0]

    commands, motion, gait = follow_grid(env, acts)
    with_task = task_of(env)
    middle = np.array([np.mean(r) for r in with_task.commands.ranges])

    def acts_blind(observation: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        frozen = observation.copy()
        frozen[:, COMMAND] = middle
        return acts(frozen)

    def does_nothing(observation: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        return np.zeros((len(observation), *policy.action_space.shape))

    def strides(observation: NDArray[np.float32]) -> NDArray[np.floating[Any]]:
        action = does_nothing(observation)
        action[:, : len(AXES)] = observation[:, COMMAND] * STRIDES[env_id]
        return action

    actors = {"sees": acts, "blind": acts_blind, "nothing": does_nothing}
    actors |= {"strides": strides} if has_trot else {}
    return {
        "env": env_id if has_trot else f"{env_id} gait=none",
        "seed": config["seed"],
        "solved_return": config["env"]["solved_return"],
        "best_blind_return": round(best_blind_return(with_task), 1),
        **{name: score(env, actor, episodes) for name, actor in actors.items()},
        "axes": {name: axis(commands, motion, i) for i, name in enumerate(AXES)},
        "gait": gait,
    }


def task_of(env: Mapping[str, Any]) -> FollowVelocity:
    """Return the task of an environment, given by what makes it: its id and its arguments."""
    made: Any = gymnasium.make(**env).unwrapped
    made.close()
    task: FollowVelocity = made.task
    return task


def score(env: Mapping[str, Any], actor: Actor, episodes: int) -> dict[str, float]:
    """Return mean return and success rate over held-out episodes."""
    worlds = min(10, episodes)
    envs = RobotVecEnv([gymnasium.make(**env).unwrapped for _ in range(worlds)])
    returns, successes = [], []
    for first in range(0, episodes, worlds):
        observation, _ = envs.reset(seed=FIRST_SEED + first)
        running, total = np.ones(worlds, np.bool_), np.zeros(worlds)
        while running.any():
            observation, reward, terminated, truncated, infos = envs.step_worlds(actor(observation))
            total += running * reward
            ended = running & (terminated | truncated)
            successes += [infos[world]["is_success"] for world in np.flatnonzero(ended)]
            running &= ~ended
        returns += total.tolist()
    envs.close()
    return {"return": round(float(np.mean(returns)), 1), "success": float(np.mean(successes))}


def best_blind_return(task: FollowVelocity, steps: int = 500) -> float:
    """Return the most that a policy can earn in an episode if it does not see its commands.

    Whatever it does in a step, the command is drawn independently of it. So what it expects for
    following the command is at most that of the best constant motion, and the other terms are at
    most 1 for the posture and, on average, for stepping in time, and 0 for the costs.
    """
    commands = task.commands.sample(np.random.default_rng(0), 4000)
    a_step = task.weights["posture"] + task.weights.get("stepping", 0.0)
    for axis, name in enumerate(AXES):
        errors = np.zeros((3, len(commands)))
        best = -np.inf
        for motion in np.linspace(*task.commands.ranges[axis], 101):
            errors[axis] = commands[:, axis] - motion
            best = max(best, float(following(*errors)[name].mean()))
        a_step += task.weights[name] * best
    return float(steps * a_step)


def follow_grid(env: Mapping[str, Any], actor: Actor) -> tuple[Floats, Floats, dict[str, Any]]:
    """Give a policy every command of the grid.

    Returns:
        Commands and mean velocities after settling, each of shape (n_commands, 3), the commands
        left out during which it fell; and the figures of the gait.
    """
    given = task_of(env).commands
    ranges, command_s = given.ranges, given.command_s
    grid = list(product(*(np.linspace(r[0], r[1], n) for r, n in zip(ranges, GRID, strict=True))))
    order = np.random.default_rng(0).permutation(len(grid))
    parts = [[grid[i] for i in order[world::WORLDS]] for world in range(WORLDS)]
    n_commands = len(parts[0])
    longer = {**env, "episode_s": n_commands * command_s}
    envs: list[Any] = [gymnasium.make(**longer).unwrapped for _ in parts]
    for each, part in zip(envs, parts, strict=True):
        each.task.commands = Schedule(fixed=part, command_s=command_s)
    worlds = RobotVecEnv(envs)
    step_s = envs[0].simulation.step_s
    steps, settling = round(command_s / step_s), round(SETTLING_S / step_s)
    observation, _ = worlds.reset(seed=FIRST_SEED)
    standing = np.ones(WORLDS, np.bool_)
    commands, motion, gait = [], [], Gait(envs[0])
    for number in range(n_commands):
        total = np.zeros((WORLDS, 3))
        for step in range(steps):
            observation, _, terminated, _, _ = worlds.step_worlds(actor(observation))
            standing &= ~terminated
            if step >= settling:
                total += FollowVelocity.measured(worlds.state)
            gait.add(worlds.state)
        for world in np.flatnonzero(standing):
            commands.append(parts[world][number])
            motion.append(total[world] / (steps - settling))
    worlds.close()
    figures = {"fell": int((~standing).sum()), **gait.figures()}
    return np.array(commands), np.array(motion), figures


def axis(commands: Floats, motion: Floats, number: int) -> dict[str, Any]:
    """Return the regression of one axis on its command, and the means for each value."""
    asked, measured = commands[:, number], motion[:, number]
    slope, offset = np.polyfit(asked, measured, 1)
    return {
        "slope": round(float(slope), 3),
        "offset": round(float(offset), 3),
        "error": round(float(abs(measured - asked).mean()), 3),
        "points": [
            [round(float(value), 3), round(float(measured[asked == value].mean()), 3)]
            for value in np.unique(asked)
        ],
    }


class Gait:
    """Collects what the feet and the motors of many worlds do."""

    def __init__(self, env: QuadrupedEnv) -> None:
        """Start with nothing."""
        self._radius = env.stance.foot_radius_m
        self._limit = np.array(env.robot.drive.motors.max_force)
        self._max_velocity = np.array(env.max_velocity_rad_s * 4)
        self._cycle_steps = 1.0 / (env.steps_hz * env.simulation.step_s)
        self._slip: list[Floats] = []
        self._contact: list[Floats] = []
        self._torque: list[Floats] = []
        self._velocity: list[Floats] = []

    def add(self, state: Any) -> None:
        """Add one control step of all worlds."""
        slips = foot_slip(state, self._radius)
        speed = np.stack([np.hypot(x, y) for x, y in slips], axis=-1)
        self._slip.append(speed[state.contact > 0])
        self._contact.append(state.contact.copy())
        self._torque.append(abs(state.joint_effort))
        self._velocity.append(abs(state.joint_velocity))

    def figures(self) -> dict[str, Any]:
        """Return the figures."""
        slip = np.concatenate(self._slip)
        contact = np.array(self._contact)  # (steps, worlds, feet)
        touchdowns = (np.diff(contact, axis=0) > 0).sum(axis=0).mean(axis=0)
        cycles = (len(contact) - 1) / self._cycle_steps
        torque, velocity = np.array(self._torque), np.array(self._velocity)
        duty = contact.mean(axis=(0, 1))
        return {
            "slip_m_s": [round(float(np.percentile(slip, q)), 3) for q in (50, 90, 99)],
            "touchdowns_per_cycle": [round(float(n / cycles), 2) for n in touchdowns],
            "duty": [round(float(share), 3) for share in duty],
            "torque_n_m": [round(float(np.percentile(torque, q)), 1) for q in (50, 90, 99)],
            "torque_saturated": round(float((torque > 0.99 * self._limit).mean()), 4),
            "velocity_rad_s": [round(float(np.percentile(velocity, q)), 1) for q in (50, 90, 99)],
            "velocity_max": [round(float(v), 1) for v in velocity.max(axis=(0, 1))[:3]],
            "velocity_exceeded": round(float((velocity > self._max_velocity).mean()), 5),
        }


def tracking_table(report: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the table of slopes."""
    names = [
        f"{name} slope, offset, error [{unit}]" for name, unit in zip(AXES, UNITS, strict=True)
    ]
    lines = [f"| policy | {' | '.join(names)} |", "|---|---|---|---|"]
    for run in report:
        cells = [
            f"{a['slope']:.2f}, {a['offset']:+.3f}, {a['error']:.3f}" for a in run["axes"].values()
        ]
        lines.append(f"| {_name(run)} | {' | '.join(cells)} |")
    return lines


def axis_table(report: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of commanded and measured velocities, means over the other two axes."""
    lines = ["| policy | axis | commanded: measured |", "|---|---|---|"]
    for run in report:
        for name, figures in run["axes"].items():
            points = ", ".join(f"{asked:+.2f}: {got:+.2f}" for asked, got in figures["points"])
            lines.append(f"| {_name(run)} | {name} | {points} |")
    return lines


def blind_table(report: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of what policies score with and without their command."""
    lines = [
        "| policy | return, success | command frozen | zero action | strides by hand "
        "| any blind policy, at most | threshold |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in report:
        cells = [
            f"{run[kind]['return']:.1f}, {run[kind]['success']:.0%}" if kind in run else "-"
            for kind in ("sees", "blind", "nothing", "strides")
        ]
        bound, threshold = run["best_blind_return"], run["solved_return"]
        lines.append(f"| {_name(run)} | {' | '.join(cells)} | {bound:.0f} | {threshold:g} |")
    return lines


def gait_table(report: Sequence[dict[str, Any]]) -> list[str]:
    """Return the lines of the gait's figures; three numbers are percentiles 50, 90 and 99."""
    lines = [
        "| policy | falls | slip [m/s] | touchdowns a cycle, each foot | time on the ground "
        "| torque [N m] | at the limit | joint velocity [rad/s] | highest, hip, upper, lower "
        "| above the limit |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for run in report:
        gait = run["gait"]
        cells = [
            str(gait["fell"]),
            *(_numbers(gait[name]) for name in ("slip_m_s", "touchdowns_per_cycle", "duty")),
            _numbers(gait["torque_n_m"]),
            f"{gait['torque_saturated']:.2%}",
            _numbers(gait["velocity_rad_s"]),
            _numbers(gait["velocity_max"]),
            f"{gait['velocity_exceeded']:.3%}",
        ]
        lines.append(f"| {_name(run)} | {' | '.join(cells)} |")
    return lines


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _name(run: dict[str, Any]) -> str:
    return f"{run['env'].removeprefix('robots/')} seed {run['seed']}"


if __name__ == "__main__":
    main()
