"""The inspection of an environment: its data, and how a terminal shows it."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from rlzoo_plus.inspection.robot_facts import JointRow, RobotFacts


SEED = 0
# Enough for a robot to show what random actions do to it.
_STEPS_TO_THE_SECOND_PICTURE = 50


@dataclass
class Spread:
    """Values seen so far.

    Attributes:
        lowest: The lowest.
        highest: The highest.
        total: Their sum.
        count: How many.
    """

    lowest: float = float("inf")
    highest: float = float("-inf")
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        """Take one more value."""
        self.lowest = min(self.lowest, value)
        self.highest = max(self.highest, value)
        self.total += value
        self.count += 1

    @property
    def mean(self) -> float:
        """Return the mean, NaN of no values."""
        return self.total / self.count if self.count else float("nan")


@dataclass
class RandomPlay:
    """What came of random actions.

    Attributes:
        steps: Steps taken.
        steps_per_s: Their rate, resets included.
        reward: Of a step.
        terms: Weighted terms of a step's reward, by name; empty if the environment reports none.
        returns: Of whole episodes.
        lengths: Steps of whole episodes.
        ends: How often an episode ended for which reason.
        outside: How many observations left their space.
    """

    steps: int = 0
    steps_per_s: float = 0.0
    reward: Spread = field(default_factory=Spread)
    terms: dict[str, Spread] = field(default_factory=dict)
    returns: Spread = field(default_factory=Spread)
    lengths: Spread = field(default_factory=Spread)
    ends: Counter[str] = field(default_factory=Counter)
    outside: int = 0


def play_randomly(env: gym.Env, seconds: float) -> RandomPlay:
    """Act at random for a while, always the same actions; rates are those of this machine.

    Args:
        env: Left in the middle of an episode.
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
        play.reward.add(float(reward))
        for name, value in _terms(info).items():
            play.terms.setdefault(name, Spread()).add(value)
        episode_return, length = episode_return + float(reward), length + 1
        if terminated or truncated:
            play.returns.add(episode_return)
            play.lengths.add(length)
            play.ends[_end(info, terminated=bool(terminated))] += 1
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
    pictures = [("start", _frame(env))]
    steps, ended = 0, False
    while steps < _STEPS_TO_THE_SECOND_PICTURE and not ended:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        steps, ended = steps + 1, bool(terminated or truncated)
    words = f"after {steps} random action{'s' if steps > 1 else ''}"
    pictures.append((words + (", where the episode ended" if ended else ""), _frame(env)))
    return pictures


def _terms(info: dict[str, Any]) -> dict[str, float]:
    terms = info.get("reward_terms")
    return terms if isinstance(terms, dict) else {}


def _end(info: dict[str, Any], *, terminated: bool) -> str:
    reason = info.get("end_reason")
    return str(reason) if reason else ("terminated" if terminated else "time_limit")


def _frame(env: gym.Env) -> np.ndarray:
    frame = np.asarray(env.render())
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"render() gave an array of shape {frame.shape}, not an image")
    return frame.astype(np.uint8)


def make_picture(spec: EnvConfig, path: Path) -> None:
    """Write an image of an environment at the start and after random actions.

    Args:
        spec: What to make.
        path: The file; it ends in .png.

    Raises:
        ConfigError: The environment renders no images, or the file cannot be written.
    """
    from PIL import Image

    from rlzoo_plus.runs.media import caption

    check_path(path)
    env = make_env(spec, render_mode="rgb_array")
    try:
        pictures = start_and_later(env)
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"--picture: {spec.id} renders no image: {error}.") from error
    finally:
        env.close()
    row = np.hstack([caption(frame, words) for words, frame in pictures])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(path)
    except OSError as error:
        raise ConfigError(f"--picture {path} cannot be written: {error}.") from error


def check_path(path: Path) -> None:
    """Refuse a file name that is not a PNG before any work.

    Raises:
        ConfigError: It does not end in .png, or is a folder.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ConfigError(f"--picture {path} is no .png file. Name one: --picture inspect.png")


@dataclass(frozen=True)
class Inspection:
    """An environment, looked at.

    Attributes:
        env_id: Its Gymnasium id.
        observation_space: As text.
        action_space: As text.
        robot: What it is made of; None where it is not built on `robots`.
        play: What random actions gave.
    """

    env_id: str
    observation_space: str
    action_space: str
    robot: RobotFacts | None
    play: RandomPlay

    def notes(self) -> list[str]:
        """Return what is doubtful."""
        notes = list(self.robot.notes) if self.robot else []
        play = self.play
        if play.outside:
            notes.append(
                f"{play.outside} of {play.steps} observations lie outside of the observation space"
            )
        weights = self.robot.weights if self.robot else {}
        for name, term in play.terms.items():
            if term.count > 1 and term.lowest == term.highest and weights.get(name, 1.0) != 0:
                notes.append(
                    f"the reward term {name} was {term.mean:.4g} at every step of random play: "
                    "nothing is learnt from it where it does not change"
                )
        return notes


def inspect_env(spec: EnvConfig, seconds: float) -> Inspection:
    """Look at an environment as training would make it.

    Args:
        spec: What to make.
        seconds: Time for random play.

    Raises:
        ConfigError: It cannot be made.
    """
    env = make_env(spec)
    try:
        return Inspection(
            env_id=spec.id,
            observation_space=str(env.observation_space),
            action_space=str(env.action_space),
            robot=_robot(env),
            play=play_randomly(env, seconds),
        )
    finally:
        env.close()


def as_data(inspection: Inspection) -> dict[str, Any]:
    """Return all of it as data that JSON knows."""
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
            "reward": _spread(play.reward),
            "reward_terms": {name: _spread(term) for name, term in play.terms.items()},
            "returns": _spread(play.returns),
            "lengths": _spread(play.lengths),
            "ends": dict(play.ends),
        },
        "notes": inspection.notes(),
    }


def _robot(env: gym.Env) -> RobotFacts | None:
    with native_output_hidden():
        # PyBullet prints its build time when it is imported.
        from rlzoo_plus.inspection.robot_facts import robot_facts
        from robots.env import BaseRobotEnv
    base = env.unwrapped
    return robot_facts(base) if isinstance(base, BaseRobotEnv) else None


def _spread(spread: Spread) -> dict[str, float] | None:
    if not spread.count or not math.isfinite(spread.total):
        return None
    return {"lowest": spread.lowest, "mean": spread.mean, "highest": spread.highest}


_MOST_LINKS = 8
_LONGEST_SPACE = 300


def print_inspection(console: Console, inspection: Inspection) -> None:
    """Print everything, the robot first."""
    console.print(f"[bold]{inspection.env_id}[/bold]")
    _line(console, "observation", printable(inspection.observation_space, _LONGEST_SPACE))
    _line(console, "action", printable(inspection.action_space, _LONGEST_SPACE))
    robot = inspection.robot
    if robot is not None:
        _print_robot(console, robot)
    _print_play(console, inspection.play, robot.weights if robot else {})
    for note in inspection.notes():
        console.print(f"[yellow]note:[/yellow] {_escaped(note)}")


def _print_robot(console: Console, robot: RobotFacts) -> None:
    mass = sum(robot.masses_kg.values())
    base = "free base" if robot.free_base else "fixed base"
    links = sorted(robot.masses_kg.items(), key=lambda item: -item[1])
    words = ", ".join(f"{name} {kg:.3g}" for name, kg in links[:_MOST_LINKS])
    more = f", {len(links) - _MOST_LINKS} more" if len(links) > _MOST_LINKS else ""
    _line(console, "robot", f"{mass:.4g} kg, {base}, {len(links)} links with mass [kg]: ", end="")
    console.print(f"{words}{more}", markup=False)
    _line(console, "actions", f"{robot.action_mode}, {1 / robot.step_s:.4g} a second")
    _line(console, "episode", f"{robot.episode_steps} steps, {_seconds(robot)}")
    if robot.clearance_m is not None:
        where = "above" if robot.clearance_m >= 0 else "below"
        _line(console, "start", f"lowest point {abs(robot.clearance_m):.3f} m {where} the ground")
    console.print()
    console.print(_joint_table(robot.joints))
    console.print()


def _seconds(robot: RobotFacts) -> str:
    return f"{robot.episode_steps * robot.step_s:.4g} s"


def _joint_table(joints: list[JointRow]) -> Table:
    table = _table("joint", "kind", "limits", "rest", "action 1", "max force", "use")
    for joint in joints:
        force = "N m" if joint.unit == "rad" else "N"
        limits = "none"
        if joint.limits is not None:
            limits = f"{joint.limits[0]:.4g} to {joint.limits[1]:.4g} {joint.unit}"
        table.add_row(
            _escaped(joint.name),
            joint.kind,
            limits,
            "-" if joint.rest is None else f"{joint.rest:.4g}",
            "-" if joint.scale is None else f"{joint.scale:.4g}",
            f"{joint.max_force:.4g} {force}",
            joint.use,
        )
    return table


def _print_play(console: Console, play: RandomPlay, weights: dict[str, float]) -> None:
    console.print(f"random play, {play.steps:,} steps, {play.steps_per_s:,.0f} steps/s")
    table = _table("reward", "weight", "lowest", "mean", "highest")
    for name, term in play.terms.items():
        weight = f"{weights[name]:g}" if name in weights else ""
        table.add_row(_escaped(name), weight, *_figures(term))
    table.add_row("a step", "", *_figures(play.reward))
    table.add_row("an episode", "", *_figures(play.returns))
    table.add_row("steps of it", "", *_figures(play.lengths))
    console.print(table)
    ends = ", ".join(f"{_escaped(name)} {count}" for name, count in play.ends.most_common())
    _line(console, "ends", ends or "no episode ended; give more --seconds")


def _figures(spread: Spread) -> tuple[str, str, str]:
    if not spread.count:
        return "-", "-", "-"
    return f"{spread.lowest:.4g}", f"{spread.mean:.4g}", f"{spread.highest:.4g}"


def _table(first: str, *others: str) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="left" if name in ("kind", "use") else "right")
    return table


def _line(console: Console, name: str, text: str, end: str = "\n") -> None:
    console.print(f"{name:<13}{text}", markup=False, end=end)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(printable(text))
