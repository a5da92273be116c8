"""`rlzoo-plus new-robot`: from a URDF to an environment that can be trained at once."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import CommandParser, tell
from rlzoo_plus.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from rlzoo_plus.scaffold.survey import RobotSurvey
    from rlzoo_plus.scaffold.text import NewRobot

_NEED_MORE = ("pd", "end_effector")


def main(arguments: list[str]) -> int:
    """Write the two files and say what comes next; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.envs.quiet import native_output_hidden

    with native_output_hidden():
        # PyBullet prints its build time when it is imported.
        from rlzoo_plus.scaffold.survey import read_urdf, survey
    from rlzoo_plus.scaffold.text import NewRobot, check_name, write_robot

    _check_mode(options.mode)
    folder = options.directory.resolve()
    check_name(options.name, folder)
    urdf = read_urdf(options.urdf)
    robot = survey(urdf, options.rest)
    is_free = robot.stands_free if options.base == "auto" else options.base == "free"
    new = NewRobot(options.name, folder, options.mode, is_free, options.forward)
    for path in write_robot(new, urdf, robot, force=options.force):
        print(f"wrote {path}")
    _tell(new, robot, guessed=options.base == "auto", directory=options.directory)
    return 0


def _check_mode(mode: str) -> None:
    from rlzoo_plus.scaffold.text import MODES

    if mode in _NEED_MORE:
        raise ConfigError(
            f"--mode {mode} needs gains, or the name of a link, that no URDF states. Begin with "
            "--mode position, and see docs/own_robot.md for what to change in the file."
        )
    if mode not in MODES:
        raise ConfigError(f"--mode: {unknown_name('mode', mode, MODES)}")


def _tell(new: NewRobot, robot: RobotSurvey, *, guessed: bool, directory: Path) -> None:
    base = "free to move" if new.is_free else "fixed to the world"
    n_joints = len(robot.joints)
    print(
        f"{n_joints} joint{'s' if n_joints > 1 else ''}, {robot.mass_kg:.4g} kg, "
        f"action mode {new.mode}; the base is {base}"
    )
    if guessed:
        other = "fixed" if new.is_free else "free"
        hang = f"{robot.branches} joint{'s hang' if robot.branches != 1 else ' hangs'} on it"
        print(f"note: that is guessed, since {hang}; --base {other} makes it otherwise")
    for note in robot.notes:
        print(f"note: {note}")
    enter = "" if directory == Path() else f"  cd {shlex.quote(str(directory))}\n"
    run = f"--config-dir conf env={new.module}"
    tell(
        f"next:\n{enter}"
        f"  python -m rlzoo_plus inspect {run} --picture {new.module}.png\n"
        f"  python -m rlzoo_plus train {run} algo=ppo n_envs=8 normalize=true\n"
        "  python -m rlzoo_plus record RUN --trust"
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus new-robot",
        description="Write a task, an environment and its configuration for a robot of your own: "
        "DIRECTORY/NAME.py and DIRECTORY/conf/env/NAME.yaml. A robot with a fixed base holds "
        "postures; one that is free moves forward.",
        epilog="Example: rlzoo-plus new-robot my_robot --urdf r2d2.urdf --mode velocity. "
        "Paths that do not exist here are searched for in pybullet_data.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the module and of env=NAME, such as my_robot")
    add("--urdf", required=True, metavar="PATH", help="the robot")
    add(
        "--mode",
        default="position",
        help="what an action commands: position (default), delta_position, velocity or torque",
    )
    add(
        "--base",
        choices=("auto", "fixed", "free"),
        default="auto",
        help="whether the base is bolted to the world (auto: guessed from the joints on it)",
    )
    add(
        "--forward",
        choices=("x", "-x", "y", "-y"),
        default="x",
        help="axis of the URDF along which a free robot moves (default: x); --forward=-x",
    )
    add(
        "--rest",
        action="append",
        default=[],
        metavar="PATTERN=VALUE",
        help="rest position of the joints whose name matches [rad or m]; may be repeated",
    )
    add("--directory", type=Path, default=Path(), help="where to write (default: here)")
    add("--force", action="store_true", help="replace files that exist")
    if not arguments:
        parser.print_help(sys.stderr)
        sys.exit(2)
    return parser.parse_args(arguments)
