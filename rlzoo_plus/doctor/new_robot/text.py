"""The two files of a new robot: filled templates, written under valid names."""

from __future__ import annotations

import ast
import importlib.util
import keyword
import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.search_path import conf_dir
from rlzoo_plus.doctor.new_robot.choice import Target
from rlzoo_plus.doctor.new_robot.falling import SUNK_SHARE, Pole
from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.doctor.new_robot.reaching import Reach
from rlzoo_plus.doctor.new_robot.survey import JointSurvey, RobotSurvey
from rlzoo_plus.doctor.new_robot.tasks import NOTHING, OF_POLE, TASKS, TaskText
from rlzoo_plus.errors import ConfigError

MODES = ("position", "delta_position", "velocity", "torque")
"""Action modes that need nothing but what a file of a robot states."""
DIRECTIONS = {"x": (1.0, 0.0), "-x": (-1.0, 0.0), "y": (0.0, 1.0), "-y": (0.0, -1.0)}
LINE_LENGTH = 100
_GRAVITY_M_S2 = 9.81
# A robot starts a little above the ground: its joints are drawn about the rest position.
_CLEARANCE_M = 0.01
_HEIGHT_WITHOUT_SHAPES_M = 0.5
_IDENTITY = (0.0, 0.0, 0.0, 1.0)
_ACTIONS_A_SECOND = 50
_ACTUATED = (
    'actuated="|".join(re.escape(n) for n, joint in JOINTS.items() if joint.driven),\n' + " " * 16
)
# What a written module may need; "" is an empty line.
_IMPORTS = (
    "import re",
    "from collections.abc import Mapping",
    "from pathlib import Path",
    "from typing import Any, ClassVar, NamedTuple, Unpack",
    "",
    "import gymnasium",
    "import numpy as np",
    "from gymnasium import spaces",
    "from numpy.typing import NDArray",
    "",
    "from robots.camera import Camera",
    "from robots.elementary import cos, sin",
    "from robots.env import BaseRobotEnv, EnvOptions",
    "from robots.frames import columns, gravity_direction, rotate, rotate_back, sum_of_squares",
    "from robots.rendering import add_sphere, move",
    "from robots.rewards import tolerance",
    "from robots.robot import ActionMode, InitialState, Mimic, RobotSpec",
    "from robots.sensors import Floats, SensorSpec, State",
    "from robots.task import Task, observation_of",
    "from robots.world import WorldSpec",
)
_ENGINE = """
        # PyBullet reads only the simplest of these files.
        options.setdefault("engine", "{}")"""
_SCALES = {
    "torque": "Torque or force of the action 1 [N m or N].",
    "velocity": "Velocity of the action 1 [rad/s or m/s].",
    "position": "How far from rest the action 1 sends it [rad or m]; the limits of the file hold.",
    "delta_position": "How far from here the action 1 sends it [rad or m].",
}


@dataclass(frozen=True)
class _Unit:
    """What is usual for joints that turn [rad], or for those that slide [m]."""

    position: str  # unit of positions
    force: str  # unit of forces
    fastest: float  # limit of velocities; those of URDFs are often placeholders
    speed: float  # velocity where the file states none
    reach: float  # distance from the rest position for a joint without limits
    free_reach: float  # distance from the rest position at which a free robot still stands


_TURNS = _Unit("rad", "N m", fastest=10.0, speed=5.0, reach=1.5, free_reach=0.5)
_SLIDES = _Unit("m", "N", fastest=1.0, speed=0.5, reach=0.1, free_reach=0.1)


@dataclass(frozen=True)
class NewRobot:
    """The robot that is asked for."""

    module: str  # Name of the Python module, and of the environment
    folder: Path  # Folder of the module
    mode: str  # Action mode, one of `MODES`
    is_free: bool  # Whether the base moves
    forward: str = "x"  # Which way is forward, a key of `DIRECTIONS`
    task: str = "posture"  # A key of `TASKS`
    target: Target = None  # What its task is about

    @property
    def class_name(self) -> str:
        """Name of the environment's class."""
        return "".join(part.capitalize() for part in self.module.split("_")) + "Env"

    @property
    def env_id(self) -> str:
        """Gymnasium id."""
        return f"{self.module}/{self.class_name.removesuffix('Env')}-v0"


def check_name(name: str, folder: Path) -> None:
    """Refuse a name under which the module or the configuration would not be found.

    Raises:
        ConfigError: It is not a module name, or it is taken.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_0123456789")
        hint = f" Did you mean {plain!r}?" if plain and plain != name else ""
        rule = "small letters, digits and _, a letter first, and no keyword of Python"
        raise ConfigError(f"{name!r} is no name for a module: it needs {rule}.{hint}")
    module, config = _paths(name, folder)
    other = f"exists already, and yours would hide it. Choose another name, such as my_{name}."
    shipped = conf_dir() / "env" / f"{name}.yaml"
    if shipped.is_file() and shipped.resolve() != config.resolve():
        raise ConfigError(f"env={name} {other}")
    try:
        spec = importlib.util.find_spec(name)
        origin = module.resolve() if spec is None else Path(spec.origin or "")
    except (ImportError, ValueError):
        origin = None
    if name in sys.stdlib_module_names or origin != module.resolve():
        raise ConfigError(f"a module {name} {other}")


def write_robot(
    new: NewRobot, file: ModelFile, robot: RobotSurvey, *, force: bool = False
) -> list[Path]:
    """Write the module and the configuration file; return their paths.

    Raises:
        ConfigError: One exists already, or cannot be written.
    """
    paths = _paths(new.module, new.folder)
    existing = [str(path) for path in paths if path.exists()]
    if existing and not force:
        fix = "Choose another name, or replace it with --force."
        verb = "exists" if len(existing) == 1 else "exist"
        raise ConfigError(f"{' and '.join(existing)} {verb} already. {fix}")
    for path, text in zip(paths, _texts(new, file, robot), strict=True):
        try:
            write_atomic(path, text)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}. Choose another --directory."
            ) from error
    return list(paths)


def _paths(name: str, folder: Path) -> tuple[Path, Path]:
    return folder / f"{name}.py", folder / "conf" / "env" / f"{name}.yaml"


def _texts(new: NewRobot, file: ModelFile, robot: RobotSurvey) -> list[str]:
    """Return the module (task, environment and registration) and the configuration file."""
    task = OF_POLE if isinstance(new.target, Pole) else TASKS[new.task]
    values = _Values(task.parts)
    values.update(_of_robot(new, file, robot), **_of_target(new.target), task_class=task.name)
    values.update(_of_task(task, values))
    module = re.sub(r"\n{3,}(?=[ )])", "\n\n", values.filled("module"))
    module = re.sub(r"\n{3,}|\n+(?=class |def |gymnasium\.register)", "\n\n\n", module)
    return [module.replace("IMPORTS", _imports(module)) + "\n", values.filled("config") + "\n"]


class _Values(dict[str, str]):
    """What stands for the placeholders: a text, or else the template of that name, filled."""

    def __init__(self, parts: Mapping[str, str]) -> None:
        super().__init__()
        self._parts = {**dict.fromkeys(NOTHING, ""), **parts}

    def __missing__(self, name: str) -> str:
        part = self._parts.get(name)
        return self.filled(name) if part is None else Template(part).substitute(self)

    def filled(self, name: str) -> str:
        text = (files(__package__) / "templates" / f"{name}.txt").read_text(encoding="utf-8")
        return Template(text.rstrip("\n")).substitute(self)


def _imports(module: str) -> str:
    """Return the lines that import the names a module uses."""
    used = {node.id for node in ast.walk(ast.parse(module)) if isinstance(node, ast.Name)}
    lines = []
    for line in _IMPORTS:
        head, _, names = line.partition(" import ")
        kept = [name for name in names.split(", ") if name in used]
        if kept:
            lines.append(f"{head} import {', '.join(kept)}")
        elif not line or line.split()[-1] in used:
            lines.append(line)
    return "\n".join(lines)


def _of_robot(new: NewRobot, file: ModelFile, robot: RobotSurvey) -> dict[str, str]:
    """Return what the templates say of a robot, whatever its task."""
    height = _HEIGHT_WITHOUT_SHAPES_M if robot.height_m is None else robot.height_m
    x, y, z = robot.middle
    z = max(z + height, 0.0) if new.is_free else z
    orientation = tuple(round(value, 6) + 0.0 for value in robot.orientation)
    tilt = max(abs(a - b) for a, b in zip(orientation, _IDENTITY, strict=True))
    rest_role = "where the policy's reading of it is 0"
    if new.mode == "position":
        rest_role = "what the action 0 commands"
    option = " " * 16
    spec = f"{option}mimic=MIMIC,\n" if robot.mimic else ""
    if file.is_mjcf:
        spec += f"{option}keep_joints=True,\n"
    elif new.is_free:
        spec += f"{option}base_position=(0.0, 0.0, START_HEIGHT_M),\n"
    if new.is_free:
        spec += f"{option}fixed_base=False,\n"
        spec += f"{option}sensors=SensorSpec(base=True),\n"
    elif new.target is not None:
        link = "POLE" if isinstance(new.target, Pole) else "TIP"
        spec += f"{option}sensors=SensorSpec(links=re.escape({link})),\n"
    return {
        "module": new.module,
        "class_name": new.class_name,
        "env_id": new.env_id,
        "title": new.module.replace("_", " ").capitalize(),
        # Part of a docstring, where a quote or a backslash would be code.
        "urdf_name": re.sub(r"[^\w./ -]", "?", file.name or file.path.name, flags=re.ASCII),
        "urdf_expression": _file_expression(file, new.folder),
        "format": "MJCF" if file.is_mjcf else "URDF",
        "engine": _ENGINE.format(file.engine) if file.engine else "",
        "kwargs": f"{{engine: {file.engine}}}" if file.engine else "{}",
        "joints": "\n".join(_joint_lines(new, robot)),
        "mimic": "\n".join(_mimic_lines(robot)),
        "mode": new.mode.upper(),
        "scale_meaning": _SCALES[new.mode],
        "rest_role": rest_role,
        "place": "on flat ground" if new.is_free else "on its fixed base",
        "world": f"WorldSpec(ground_friction=1.0),\n{' ' * 12}" if new.is_free else "",
        "spec": spec,
        "height": repr(round(height + _CLEARANCE_M, 4)),
        "lowest": repr(round(height - SUNK_SHARE * robot.size_m[2], 4)),
        "orientation": repr(_IDENTITY if tilt < 1e-6 else orientation),
        "direction": repr((*DIRECTIONS[new.forward], 0.0)),
        "camera_target": repr((round(x, 2), round(y, 2), round(z, 2))),
        "camera_distance": repr(round(2.4 * max(robot.size_m) + 0.3, 1)),
    }


def _of_target(target: Target) -> dict[str, str]:
    """Return what the templates say of what a task is about."""
    is_pole = isinstance(target, Pole)
    values = {
        "if_driven": " if joint.driven" if is_pole else "",
        "actuated": _ACTUATED if is_pole else "",
    }
    if isinstance(target, Pole):
        pose = tuple(round(value, 6) + 0.0 for value in target.orientation)
        return {**values, "pole": _quoted(target.link), "pole_orientation": repr(pose)}
    if target is None:
        return values
    values |= {"tip": _quoted(target.tip), "tolerance": repr(target.tolerance_m)}
    if isinstance(target, Reach):
        return {**values, "goals": "\n".join(f"        {goal!r}," for goal in target.goals)}
    values |= {"centre": repr(target.centre), "radius": repr(target.radius_m)}
    return {**values, "sides": repr(target.sides)}


def _of_task(task: TaskText, values: Mapping[str, str]) -> dict[str, str]:
    """Return what the templates say of a task's arguments, in Python and in the configuration."""
    *terms, last = (f"``{name}``" for name in task.weights)
    weights = ", ".join(f"{name}: {weight}" for name, weight in task.weights.items())
    steps = round(task.episode_s * _ACTIONS_A_SECOND)
    settings = {
        name: (Template(default).substitute(values), text)
        for name, (default, text) in task.settings.items()
    }
    in_yaml = {f"{name}: {default}": text for name, (default, text) in settings.items()}
    in_yaml[f"episode_s: {task.episode_s}"] = "length of an episode [s], at 50 steps a second"
    lines = [f"  # {setting:<26} {text}" for setting, text in in_yaml.items()]
    lines.insert(-1, f"  # reward: {{{weights}}}  weights; name only those you change")
    most = task.most * steps
    return {
        "aim": task.aim,
        "task": values[task.template],
        "terms": f"{', '.join(terms)} and {last}",
        "arguments": "\n".join(f"        {n}: float = {d}," for n, (d, _) in settings.items()),
        "argument_docs": "\n".join(
            f"            {name}: {text[0].upper()}{text[1:]}."
            for name, (_, text) in settings.items()
        ),
        "passed": ", ".join(f"{name}={name}" for name in settings),
        "episode_s": repr(task.episode_s),
        "settings": "\n".join(lines),
        "max_return": f"{most:g}  # {steps} steps of at most {task.most:g}",
    }


def _file_expression(file: ModelFile, folder: Path) -> str:
    """Return Python for the path: relative to the module where the file is beside or below it."""
    if file.name is not None:
        return f"{_quoted(file.name)}  # in pybullet_data"
    if file.path.is_relative_to(folder):
        inside = file.path.relative_to(folder).as_posix()
        return f"str(Path(__file__).parent / {_quoted(inside)})"
    return f"str(Path({_quoted(str(file.path))}))"


def _joint_lines(new: NewRobot, robot: RobotSurvey) -> Iterator[str]:
    """Yield lines for each joint, with values that are safe to begin with."""
    half_weight_n = 0.5 * robot.mass_kg * _GRAVITY_M_S2
    for joint in robot.joints:
        reach = (_SLIDES if joint.slides else _TURNS).reach
        lowest = joint.rest - reach if joint.endless else joint.lower
        highest = joint.rest + reach if joint.endless else joint.upper
        force = joint.max_force if 0 < joint.max_force < math.inf else half_weight_n
        scale = min(force, half_weight_n)
        if new.mode != "torque":
            scale = _scale(joint, new, lowest, highest)
        values = {"rest": _short(joint.rest)}
        if new.task == "posture":
            values["goal"] = f"({_short(lowest)}, {_short(highest)})"
        values |= {"scale": _short(scale), "max_force": _short(force)}
        if new.task in ("walk", "balance") and joint.endless and not joint.slides:
            values["turns"] = "True"
        if isinstance(new.target, Pole) and joint.index in new.target.hinges:
            values |= {"scale": "0.0", "max_force": "0.0", "driven": "False"}
        inside = ", ".join(f"{key}={value}" for key, value in values.items())
        yield f"    # {_about(joint)}"
        yield _call(f"{_quoted(joint.name)}: Joint", inside)


def _mimic_lines(robot: RobotSurvey) -> Iterator[str]:
    """Yield the table of the joints that follow another one, nothing without such joints."""
    if not robot.mimic:
        return
    yield "\n# Joints that follow another one: joint, leader, multiplier, offset [rad or m]."
    calls = [
        _call(
            "Mimic",
            f"{_quoted(one.joint)}, {_quoted(one.leader)}, {_short(one.multiplier)}, "
            f"{_short(one.offset)}",
        )
        for one in robot.mimic
    ]
    short = f"MIMIC = ({calls[0].strip()})"
    fits = len(calls) == 1 and len(short) <= LINE_LENGTH
    yield from [short] if fits else ["MIMIC = (", *calls, ")"]


def _call(name: str, inside: str) -> str:
    line = f"    {name}({inside}),"
    return line if len(line) <= LINE_LENGTH else f"    {name}(\n        {inside}\n    ),"


def _scale(joint: JointSurvey, new: NewRobot, lowest: float, highest: float) -> float:
    unit = _SLIDES if joint.slides else _TURNS
    if new.mode == "velocity":
        return min(joint.max_velocity or unit.speed, unit.fastest)
    if new.mode == "delta_position":
        return 0.1 * min(highest - lowest, unit.reach)
    reach = max(highest - joint.rest, joint.rest - lowest)
    return min(reach, unit.free_reach) if new.is_free else reach


def _about(joint: JointSurvey) -> str:
    unit = _SLIDES if joint.slides else _TURNS
    limits = f"{joint.lower:.4g} to {joint.upper:.4g} {unit.position}"
    kind = "prismatic" if joint.slides else "revolute"
    parts = [kind, "without limits" if joint.endless else limits]
    if joint.max_force > 0:
        parts.append(f"{joint.max_force:.4g} {unit.force}")
    if joint.max_velocity > 0:
        parts.append(f"{joint.max_velocity:.4g} {unit.position}/s")
    return printable(", ".join(parts))


def _short(value: float) -> str:
    """Return a number with four digits, as a person would write it."""
    return repr(float(f"{value:.4g}") if math.isfinite(value) else value)


def _quoted(text: str) -> str:
    """Return a Python literal for any text, in double quotes where that needs no escapes."""
    literal = ascii(text)
    plain = literal[1:-1]
    return f'"{plain}"' if literal[0] == "'" and '"' not in plain and "\\" not in plain else literal
