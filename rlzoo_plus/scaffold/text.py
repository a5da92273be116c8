"""The two files of a new robot: filled templates, written under names that work."""

from __future__ import annotations

import importlib.util
import keyword
import math
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.compose import conf_dir
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.scaffold.survey import JointSurvey, RobotSurvey
from rlzoo_plus.scaffold.urdf import UrdfFile

LINE_LENGTH = 100
DIRECTIONS = {"x": (1.0, 0.0), "-x": (-1.0, 0.0), "y": (0.0, 1.0), "-y": (0.0, -1.0)}
# A robot starts a little above the ground: its joints are drawn about the rest position.
_CLEARANCE_M = 0.01
# Of its height; a robot whose base came down as far lies on the ground.
_SUNK_SHARE = 0.4
_HEIGHT_WITHOUT_SHAPES_M = 0.5
_IDENTITY = (0.0, 0.0, 0.0, 1.0)

MODES = ("position", "delta_position", "velocity", "torque")
"""Action modes that need nothing but what a URDF states."""
_GRAVITY_M_S2 = 9.81
# Limits that URDFs state are often placeholders: no joint acts with more than these.
_FASTEST = {"angle": 10.0, "length": 1.0}
_USUAL_SPEED = {"angle": 5.0, "length": 0.5}
_USUAL_RANGE = {"angle": 1.5, "length": 0.1}
# About the rest position, where a free robot still stands.
_RANGE_OF_A_FREE_ROBOT = {"angle": 0.5, "length": 0.1}

_SCALES = {
    "torque": "Torque or force of the action 1 [N m or N].",
    "velocity": "Velocity of the action 1 [rad/s or m/s].",
    "position": "How far from rest the action 1 sends it [rad or m]; the limits of the URDF hold.",
    "delta_position": "How far from here the action 1 sends it [rad or m].",
}
_REST_ROLES = {"position": "what the action 0 commands"}


@dataclass(frozen=True)
class NewRobot:
    """What is asked for.

    Attributes:
        module: Name of the Python module, and of the environment.
        folder: Where the module will lie.
        mode: Action mode.
        is_free: Whether the base moves.
        forward: Which way is forward, a key of `DIRECTIONS`.
    """

    module: str
    folder: Path
    mode: str
    is_free: bool
    forward: str = "x"

    @property
    def class_name(self) -> str:
        """Return the name of the environment's class."""
        return "".join(part.capitalize() for part in self.module.split("_")) + "Env"

    @property
    def env_id(self) -> str:
        """Return the Gymnasium id."""
        return f"{self.module}/{self.class_name.removesuffix('Env')}-v0"


def python_text(
    new: NewRobot, urdf: UrdfFile, robot: RobotSurvey, joints: list[JointValues]
) -> str:
    """Return the module: the task, the environment and its registration."""
    height = _HEIGHT_WITHOUT_SHAPES_M if robot.height_m is None else robot.height_m
    x, y, z = robot.middle
    z = max(z + height, 0.0) if new.is_free else z
    is_own = urdf.name is None
    orientation = tuple(round(value, 6) + 0.0 for value in robot.orientation)
    return _filled(
        f"{_kind(new)}.py.txt",
        new,
        title=_title(new),
        # It stands in a docstring, where a quote or a backslash would be code.
        urdf_name=re.sub(r"[^\w./ -]", "?", urdf.name or urdf.path.name, flags=re.ASCII),
        path_import="\nfrom pathlib import Path" if is_own else "",
        urdf_expression=_urdf_expression(urdf, new.folder),
        joints="\n".join(_joint_lines(new, joints)),
        mode=new.mode.upper(),
        scale_meaning=_SCALES[new.mode],
        rest_role=_REST_ROLES.get(new.mode, "where the policy's reading of it is 0"),
        height=repr(round(height + _CLEARANCE_M, 4)),
        lowest=repr(round(height - _SUNK_SHARE * robot.size_m[2], 4)),
        orientation=repr(_IDENTITY if _is_level(orientation) else orientation),
        direction=repr((*DIRECTIONS[new.forward], 0.0)),
        camera_target=repr((round(x, 2), round(y, 2), round(z, 2))),
        camera_distance=repr(round(2.4 * max(robot.size_m) + 0.3, 1)),
    )


def yaml_text(new: NewRobot) -> str:
    """Return the environment's configuration file."""
    return _filled(f"{_kind(new)}.yaml.txt", new, title=_title(new))


def _kind(new: NewRobot) -> str:
    return "forward" if new.is_free else "posture"


def _title(new: NewRobot) -> str:
    return new.module.replace("_", " ").capitalize()


def _filled(name: str, new: NewRobot, **values: str) -> str:
    text = (files(__package__) / "templates" / name).read_text(encoding="utf-8")
    return Template(text).substitute(
        module=new.module, class_name=new.class_name, env_id=new.env_id, **values
    )


def _urdf_expression(urdf: UrdfFile, folder: Path) -> str:
    """Return Python for the path: relative to the module where the URDF lies beside or below it."""
    if urdf.name is not None:
        return f"{_quoted(urdf.name)}  # in pybullet_data"
    if urdf.path.is_relative_to(folder):
        inside = urdf.path.relative_to(folder).as_posix()
        return f"str(Path(__file__).parent / {_quoted(inside)})"
    return f"str(Path({_quoted(str(urdf.path))}))"


def _joint_lines(new: NewRobot, joints: Iterable[JointValues]) -> Iterable[str]:
    for joint in joints:
        values = {"rest": repr(joint.rest)}
        if not new.is_free:
            values["goal"] = f"({joint.lowest!r}, {joint.highest!r})"
        values |= {"scale": repr(joint.scale), "max_force": repr(joint.max_force)}
        if new.is_free and joint.turns:
            values["turns"] = "True"
        inside = ", ".join(f"{key}={value}" for key, value in values.items())
        yield f"    # {joint.about}"
        line = f"    {_quoted(joint.name)}: Joint({inside}),"
        if len(line) > LINE_LENGTH:
            line = f"    {_quoted(joint.name)}: Joint(\n        {inside}\n    ),"
        yield line


def _quoted(text: str) -> str:
    """Return a Python literal for any text, in double quotes where that needs no escapes."""
    literal = ascii(text)
    plain = literal[1:-1]
    return f'"{plain}"' if literal[0] == "'" and '"' not in plain and "\\" not in plain else literal


def _is_level(orientation: tuple[float, ...]) -> bool:
    return max(abs(a - b) for a, b in zip(orientation, _IDENTITY, strict=True)) < 1e-6


def paths_for(name: str, folder: Path) -> tuple[Path, Path]:
    """Return where the module and the configuration of a robot go."""
    return folder / f"{name}.py", folder / "conf" / "env" / f"{name}.yaml"


def check_name(name: str, folder: Path) -> None:
    """Refuse a name under which the module or the configuration would not be found.

    Raises:
        ConfigError: It is no module name, or something else has it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        plain = re.sub(r"\W+", "_", name.lower(), flags=re.ASCII).strip("_0123456789")
        hint = f" Did you mean {plain!r}?" if plain and plain != name else ""
        raise ConfigError(
            f"{name!r} is no name for a module: it needs small letters, digits and _, a letter "
            f"first, and must be no keyword of Python.{hint}"
        )
    module, config = paths_for(name, folder)
    shipped = conf_dir() / "env" / f"{name}.yaml"
    if shipped.is_file() and shipped.resolve() != config.resolve():
        raise ConfigError(
            f"env={name} exists already, in {shipped.parent}, and yours would hide it. Choose "
            f"another name, such as my_{name}."
        )
    if name in sys.stdlib_module_names or _is_taken(name, module):
        raise ConfigError(
            f"a module {name} exists already, and one of the two would hide the other. Choose "
            f"another name, such as my_{name}."
        )


def write_robot(
    new: NewRobot, urdf: UrdfFile, robot: RobotSurvey, *, force: bool = False
) -> list[Path]:
    """Write the module and the configuration file; return where they are.

    Raises:
        ConfigError: One exists already, or cannot be written.
    """
    module, config = paths_for(new.module, new.folder)
    there = [str(path) for path in (module, config) if path.exists()]
    if there and not force:
        raise ConfigError(
            f"{' and '.join(there)} exist{'s' if len(there) == 1 else ''} already. Choose another "
            "name, or replace it with --force."
        )
    joints = joint_values(robot, new.mode, is_free=new.is_free)
    texts = {module: python_text(new, urdf, robot, joints), config: yaml_text(new)}
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
        except OSError as error:
            raise ConfigError(
                f"{path} cannot be written: {error.strerror}. Choose another --directory."
            ) from error
    return list(texts)


def _is_taken(name: str, module: Path) -> bool:
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return True
    return spec is not None and (spec.origin is None or Path(spec.origin) != module.resolve())


@dataclass(frozen=True)
class JointValues:
    """What is written down for one joint.

    Attributes:
        name: Its name in the URDF.
        about: What the URDF says of it, for a comment.
        rest: Rest position [rad or m].
        lowest: Lowest position that is asked of it [rad or m].
        highest: Highest position that is asked of it [rad or m].
        scale: What the action 1 stands for.
        max_force: Strength of its motor [N m or N].
        turns: Whether it turns without limits.
    """

    name: str
    about: str
    rest: float
    lowest: float
    highest: float
    scale: float
    max_force: float
    turns: bool


def joint_values(robot: RobotSurvey, mode: str, *, is_free: bool) -> list[JointValues]:
    """Return values for every joint that are safe to begin with.

    Args:
        robot: What is known of it.
        mode: One of `MODES`.
        is_free: Whether its base moves.
    """
    weight_n = robot.mass_kg * _GRAVITY_M_S2
    values = []
    for joint in robot.joints:
        force = joint.max_force if joint.max_force > 0 else 0.5 * weight_n
        usual = _USUAL_RANGE[_unit(joint)]
        lowest = joint.rest - usual if joint.endless else joint.lower
        highest = joint.rest + usual if joint.endless else joint.upper
        if mode == "torque":
            scale = min(force, 0.5 * weight_n)
        else:
            scale = _scale(joint, mode, lowest, highest, is_free=is_free)
        values.append(
            JointValues(
                name=joint.name,
                about=_about(joint),
                rest=_short(joint.rest),
                lowest=_short(lowest),
                highest=_short(highest),
                scale=_short(scale),
                max_force=_short(force),
                turns=joint.endless and not joint.slides,
            )
        )
    return values


def _scale(joint: JointSurvey, mode: str, lowest: float, highest: float, *, is_free: bool) -> float:
    unit = _unit(joint)
    if mode == "velocity":
        return min(joint.max_velocity or _USUAL_SPEED[unit], _FASTEST[unit])
    if mode == "delta_position":
        return 0.1 * min(highest - lowest, _USUAL_RANGE[unit])
    reach = max(highest - joint.rest, joint.rest - lowest)
    return min(reach, _RANGE_OF_A_FREE_ROBOT[unit]) if is_free else reach


def _unit(joint: JointSurvey) -> str:
    return "length" if joint.slides else "angle"


def _about(joint: JointSurvey) -> str:
    length, force = ("m", "N") if joint.slides else ("rad", "N m")
    kind = "prismatic" if joint.slides else "revolute"
    limits = (
        "without limits" if joint.endless else f"{joint.lower:.4g} to {joint.upper:.4g} {length}"
    )
    words = [kind, limits]
    if joint.max_force > 0:
        words.append(f"{joint.max_force:.4g} {force}")
    if joint.max_velocity > 0:
        words.append(f"{joint.max_velocity:.4g} {length}/s")
    return printable(", ".join(words))


def _short(value: float) -> float:
    """Return a number with four digits, as a person would write it."""
    return float(f"{value:.4g}") if math.isfinite(value) else value
