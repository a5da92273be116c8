"""What an inspection looks like in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.inspection.play import RandomPlay, Spread
from rlzoo_plus.inspection.report import Inspection
from rlzoo_plus.inspection.robot import JointRow, RobotFacts

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
