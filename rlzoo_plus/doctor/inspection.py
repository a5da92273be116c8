"""The inspection of an environment: its spaces, its robot, random play, and an image of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from PIL import Image
from rich.markup import escape
from rich.table import Table

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.recorder import end_of, terms_of
from rlzoo_plus.policies.robustness import is_robot
from rlzoo_plus.training.media import as_frame, caption

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.doctor.robot_facts import RobotFacts

SEED = 0
# Enough to show what random actions do to a robot.
_STEPS_TO_THE_SECOND_PICTURE = 50
_MOST_LINKS = 8
_LONGEST_SPACE = 300


@dataclass
class RandomPlay:
    """Statistics of random actions."""

    steps: int = 0  # Number of steps
    steps_per_s: float = 0.0  # Steps per second, including resets
    rewards: list[float] = field(default_factory=list)  # Rewards of steps
    # Weighted terms of the reward by name; empty if the environment reports none
    terms: dict[str, list[float]] = field(default_factory=dict)
    returns: list[float] = field(default_factory=list)  # Returns of whole episodes
    lengths: list[float] = field(default_factory=list)  # Lengths of whole episodes [steps]
    ends: Counter[str] = field(default_factory=Counter)  # How many episodes ended for each reason
    outside: int = 0  # Number of observations outside of the observation space


def play_randomly(env: gym.Env, seconds: float) -> RandomPlay:
    """Take random actions with a fixed seed.

    Args:
        env: The environment; it is left in the middle of an episode.
        seconds: For how long; at least one step is taken.
    """
    play = RandomPlay()
    env.action_space.seed(SEED)
    env.reset(seed=SEED)
    began = time.perf_counter()
    episode_return, length = 0.0, 0
    while play.steps == 0 or time.perf_counter() - began < seconds:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        play.steps += 1
        play.outside += not env.observation_space.contains(observation)
        play.rewards.append(float(reward))
        for name, value in terms_of(info).items():
            play.terms.setdefault(name, []).append(value)
        episode_return, length = episode_return + float(reward), length + 1
        if terminated or truncated:
            play.returns.append(episode_return)
            play.lengths.append(length)
            play.ends[end_of({**info, "TimeLimit.truncated": not terminated})] += 1
            episode_return, length = 0.0, 0
            env.reset()
    play.steps_per_s = play.steps / (time.perf_counter() - began)
    return play


def start_and_later(env: gym.Env) -> list[tuple[str, np.ndarray]]:
    """Return two frames with captions: the start of an episode, and after random actions.

    Args:
        env: Made with `render_mode="rgb_array"`; left in the middle of an episode.
    """
    env.action_space.seed(SEED)
    env.reset(seed=SEED)
    start = as_frame(env.render())
    steps, ended = 0, False
    while steps < _STEPS_TO_THE_SECOND_PICTURE and not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps, ended = steps + 1, bool(terminated or truncated)
    later = f"after {steps} random action{'s' if steps > 1 else ''}"
    return [
        ("start", start),
        (later + (", where the episode ended" if ended else ""), as_frame(env.render())),
    ]


def make_picture(spec: EnvConfig, path: Path) -> None:
    """Write an image of an environment at the start and after random actions.

    Raises:
        ConfigError: The environment renders no images, or the file cannot be written.
    """
    check_path(path)
    env = make_env(spec, render_mode="rgb_array")
    try:
        pictures = start_and_later(env)
    except (ConfigError, NotImplementedError) as error:
        raise ConfigError(f"--picture: {spec.id} renders no image: {error}") from error
    finally:
        env.close()
    row = np.hstack([caption(frame, text) for text, frame in pictures])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(path)
    except OSError as error:
        raise ConfigError(f"--picture {path} cannot be written: {error}.") from error


def check_path(path: Path) -> None:
    """Refuse a path that is not a PNG file.

    Raises:
        ConfigError: It does not end in .png, or is a folder.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ConfigError(f"--picture {path} is no .png file. Name one: --picture inspect.png")


@dataclass(frozen=True)
class Inspection:
    """What is known about an environment."""

    env_id: str  # Its Gymnasium id
    observation_space: str  # As text
    action_space: str  # As text
    robot: RobotFacts | None  # Its robot; None if it is not built on `robots`
    play: RandomPlay  # Statistics of random actions

    def notes(self) -> list[str]:
        """Return what is doubtful."""
        notes = list(self.robot.notes) if self.robot else []
        play = self.play
        if play.outside:
            notes.append(
                f"{play.outside} of {play.steps} observations lie outside of the observation space"
            )
        weights = self.robot.weights if self.robot else {}
        weighed = {name: t for name, t in play.terms.items() if weights.get(name, 1.0) != 0}
        # A bonus for a goal that random play never reaches, or a price of time, is no fault, and
        # a task with goals may pay for nothing else: hindsight learns from it.
        has_goals = "desired_goal" in self.observation_space
        if (
            weighed
            and not has_goals
            and all(len(term) > 1 and min(term) == max(term) for term in weighed.values())
        ):
            same = ", ".join(f"{name} {term[0]:.4g}" for name, term in weighed.items())
            notes.append(
                f"no reward term changed in random play ({same}): nothing is learned from a reward "
                "that is the same whatever the policy does"
            )
        return notes


def inspect_env(spec: EnvConfig, seconds: float) -> Inspection:
    """Inspect an environment as training would make it.

    Raises:
        ConfigError: It cannot be made.
    """
    env = make_env(spec)
    try:
        robot = None
        if is_robot(env):
            from rlzoo_plus.doctor.robot_facts import robot_facts

            base: Any = env.unwrapped
            robot = robot_facts(base)
        return Inspection(
            env_id=spec.id,
            observation_space=str(env.observation_space),
            action_space=str(env.action_space),
            robot=robot,
            play=play_randomly(env, seconds),
        )
    finally:
        env.close()


def _spread(values: list[float]) -> dict[str, float] | None:
    """Return lowest, mean and highest for JSON, None without values or if one is not finite."""
    if not values or not np.isfinite(values).all():
        return None
    return {"lowest": min(values), "mean": float(np.mean(values)), "highest": max(values)}


def _spread_texts(values: list[float]) -> list[str]:
    if not values:
        return ["-"] * 3
    return [f"{value:.4g}" for value in (min(values), np.mean(values), max(values))]


def as_data(inspection: Inspection) -> dict[str, Any]:
    """Return the inspection as data for JSON."""
    play = inspection.play
    robot = None if inspection.robot is None else asdict(inspection.robot)
    if robot is not None:
        del robot["notes"]
    return {
        "env": inspection.env_id,
        "observation_space": inspection.observation_space,
        "action_space": inspection.action_space,
        "robot": robot,
        "random_play": {
            "steps": play.steps,
            "steps_per_s": round(play.steps_per_s, 1),
            "reward": _spread(play.rewards),
            "reward_terms": {name: _spread(term) for name, term in play.terms.items()},
            "returns": _spread(play.returns),
            "lengths": _spread(play.lengths),
            "ends": dict(play.ends),
        },
        "notes": inspection.notes(),
    }


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Print everything, the robot first."""
    console.print(f"[bold]{inspection.env_id}[/bold]")
    _line(console, "observation", printable(inspection.observation_space, _LONGEST_SPACE))
    _line(console, "action", printable(inspection.action_space, _LONGEST_SPACE))
    robot, play = inspection.robot, inspection.play
    if robot is not None:
        _print_robot(console, robot)
    console.print(f"random play, {play.steps:,} steps, {play.steps_per_s:,.0f} steps/s")
    table = _table("reward", "weight", "lowest", "mean", "highest")
    weights = robot.weights if robot else {}
    for name, term in play.terms.items():
        weight = f"{weights[name]:g}" if name in weights else ""
        table.add_row(escape(printable(name)), weight, *_spread_texts(term))
    table.add_row("a step", "", *_spread_texts(play.rewards))
    table.add_row("an episode", "", *_spread_texts(play.returns))
    table.add_row("steps of it", "", *_spread_texts(play.lengths))
    console.print(table)
    ends = ", ".join(f"{printable(name)} {count}" for name, count in play.ends.most_common())
    _line(console, "ends", ends or "no episode ended; give more --seconds")
    for note in inspection.notes():
        console.print(f"[yellow]note:[/yellow] {escape(printable(note))}")


def _print_robot(console: Console, robot: RobotFacts) -> None:
    base = "free base" if robot.free_base else "fixed base"
    links = sorted(robot.masses_kg.items(), key=lambda item: -item[1])
    masses = ", ".join(f"{name} {kg:.3g}" for name, kg in links[:_MOST_LINKS])
    more = f", {len(links) - _MOST_LINKS} more" if len(links) > _MOST_LINKS else ""
    mass = f"{sum(robot.masses_kg.values()):.4g} kg, {base}, {len(links)} links with mass [kg]: "
    _line(console, "robot", mass + masses + more)
    _line(console, "actions", f"{robot.action_mode}, {1 / robot.step_s:.4g} a second")
    seconds = f"{robot.episode_steps * robot.step_s:.4g} s"
    _line(console, "episode", f"{robot.episode_steps} steps, {seconds}")
    if robot.clearance_m is not None:
        where = "above" if robot.clearance_m >= 0 else "below"
        _line(console, "start", f"lowest point {abs(robot.clearance_m):.3f} m {where} the ground")
    table = _table(
        "joint", "kind", "limits", "rest", "action 1", "max force", "max velocity", "use"
    )
    for joint in robot.joints:
        limits = "none"
        if joint.limits is not None:
            limits = f"{joint.limits[0]:.4g} to {joint.limits[1]:.4g} {joint.unit}"
        table.add_row(
            escape(printable(joint.name)),
            joint.kind,
            limits,
            *("-" if value is None else f"{value:.4g}" for value in (joint.rest, joint.scale)),
            f"{joint.max_force:.4g} {'N m' if joint.unit == 'rad' else 'N'}",
            "any" if joint.max_velocity is None else f"{joint.max_velocity:.4g} {joint.unit}/s",
            joint.use,
        )
    console.print("", table, "", sep="\n")


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name in ("kind", "use") else "right")
    return table


def _line(console: Console, name: str, text: str) -> None:
    console.print(f"{name:<13}{text}", markup=False)
