"""The inspection of an environment: its data, and how a terminal shows it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.inspection.play import RandomPlay, Spread, play_randomly
from rlzoo_plus.inspection.robot import JointRow, RobotFacts

if TYPE_CHECKING:
    import gymnasium as gym
    from rich.console import Console
    from rich.table import Table

    from rlzoo_plus.inspection.robot import RobotFacts


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
        from rlzoo_plus.inspection.robot import robot_facts
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
