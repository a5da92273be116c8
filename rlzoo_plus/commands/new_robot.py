"""`rlzoo-plus new-robot`: write an environment for a URDF or an MJCF, ready to train."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError, unknown_name
from robots.quiet import native_output_hidden

if TYPE_CHECKING:
    from rlzoo_plus.doctor.new_robot.survey import RobotSurvey
    from rlzoo_plus.doctor.new_robot.text import NewRobot


# Small changes of a posture explore better than jumps between postures.
_DEFAULT_MODES = {"reach": "delta_position", "track": "delta_position"}


def main(arguments: list[str]) -> int:
    """Write the two files and print what to do next; return the exit code."""
    options = _parse(arguments)

    with native_output_hidden():
        # PyBullet prints its build time when it is imported.
        from rlzoo_plus.doctor.new_robot import choice, falling, mjcf, survey, text, urdf

    if options.mode in ("pd", "end_effector"):
        raise ConfigError(
            f"--mode {options.mode} needs gains, or the name of a link, that no file states. Start "
            "with --mode position, and see docs/own_robot.md for what to change in the file."
        )
    if options.mode not in (None, *text.MODES):
        raise ConfigError(f"--mode: {unknown_name('mode', options.mode, text.MODES)}")
    folder = options.directory.resolve()
    text.check_name(options.name, folder)
    robot_file = mjcf.read_mjcf(options.mjcf) if options.mjcf else urdf.read_urdf(options.urdf)
    robot = survey.survey(robot_file, options.rest)
    is_free = robot.stands_free if options.base == "auto" else options.base == "free"
    if robot_file.is_free is not None and is_free != robot_file.is_free:
        fix = "Add a <freejoint/> to its first body" if is_free else "Take its free joint out"
        raise ConfigError(f"--base {options.base}: {robot.reason}. {fix}, or leave --base out.")
    task, target = choice.choose_task(options.task, robot_file, robot, is_free=is_free)
    if not isinstance(target, falling.Pole):
        robot = robot.without(robot_file.undriven)
    mode = options.mode or _DEFAULT_MODES.get(task, "position")
    if options.mode is None and isinstance(target, falling.Pole):
        # It is balanced by force: a position would have to be learned first.
        mode = "torque"
    new = text.NewRobot(options.name, folder, mode, is_free, options.forward, task, target)
    for path in text.write_robot(new, robot_file, robot, force=options.force):
        print(f"wrote {path}")
    _print_summary(new, robot, options)
    return 0


def _print_summary(new: NewRobot, robot: RobotSurvey, options: argparse.Namespace) -> None:
    base, other = ("free to move", "fixed") if new.is_free else ("fixed to the world", "free")
    n_joints = len(robot.joints)
    print(
        f"{n_joints} joint{'s' if n_joints > 1 else ''}, {robot.mass_kg:.4g} kg, "
        f"action mode {new.mode}; the base is {base}; task {new.task}"
    )
    if options.base == "auto" and not options.mjcf:
        print(f"note: the base is guessed, since {robot.reason}; --base {other} changes it")
    for note in robot.notes:
        print(f"note: {note}")
    folder = options.directory
    enter = "" if folder == Path() else f"  cd {shlex.quote(str(folder))}\n"
    run = f"--config-dir conf env={new.module}"
    tell(
        f"next:\n{enter}"
        f"  rlzoo-plus inspect {run} --picture {new.module}.png\n"
        f"  rlzoo-plus train {run} algo=ppo n_envs=8 normalize=true\n"
        "  rlzoo-plus record RUN --trust"
    )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "new-robot",
        "Write a task, an environment and its configuration for your own robot: DIRECTORY/NAME.py "
        "and DIRECTORY/conf/env/NAME.yaml.",
        "my_robot --urdf r2d2.urdf --mode velocity",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", metavar="NAME", help="name of the module and of env=NAME, such as my_robot")
    file = parser.add_mutually_exclusive_group(required=True)
    file.add_argument("--urdf", metavar="PATH", help="a file here, or one of pybullet_data")
    mjcf_help = "the same for an MJCF, such as the robot.xml or scene.xml of MuJoCo Menagerie"
    file.add_argument("--mjcf", metavar="PATH", help=mjcf_help)
    task_help = (
        "reach: the end of an arm to a point; track: it follows a moving target; posture: all "
        "joints hold one; walk: a free robot moves forward; balance: a free robot, or a pole on a "
        "hinge without a motor, stays upright (default: what fits the robot)"
    )
    tasks = ("auto", "reach", "track", "posture", "walk", "balance")
    add("--task", choices=tasks, default="auto", metavar="TASK", help=task_help)
    mode_help = (
        "what an action commands: position, delta_position, velocity or torque (default: "
        "delta_position to reach and to track, torque for a pole, else position)"
    )
    add("--mode", help=mode_help)
    base_help = "whether the base is fixed to the world (auto: guessed from limbs and wheels)"
    add("--base", choices=("auto", "fixed", "free"), default="auto", help=base_help)
    forward_help = "axis of the file along which a free robot moves (default: x); --forward=-x"
    add("--forward", choices=("x", "-x", "y", "-y"), default="x", help=forward_help)
    rest_help = "rest position of the joints whose name matches [rad or m]; may be repeated"
    add("--rest", action="append", default=[], metavar="PATTERN=VALUE", help=rest_help)
    add("--directory", type=Path, default=Path(), help="where to write (default: here)")
    add("--force", action="store_true", help="replace files that exist")
    if not arguments:
        parser.print_help(sys.stderr)
        sys.exit(2)
    return parser.parse_args(arguments)
