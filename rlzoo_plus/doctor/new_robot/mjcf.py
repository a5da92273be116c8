"""Reads what an MJCF says of a robot, such as the models of MuJoCo Menagerie."""

from __future__ import annotations

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.doctor.new_robot.model_file import ModelFile
from rlzoo_plus.doctor.new_robot.urdf import find_model
from rlzoo_plus.errors import ConfigError
from robots.engines import MUJOCO, EngineError, mjcf_facts

_LEFT_OUT = {
    "tendons": "tendons are left out, with all that they pull and couple",
    "actuators": "actuators drive no single joint by a force, and are left out",
    "friction": "joints state a frictionloss, which is left out; motors overcome it",
    "springs": "joints have a spring, which the motors work against",
    "options": "settings of the file are those of the environment's world instead",
}
_ALSO = {
    "shapes of the world": "the ground and other shapes of the world are left out",
    "textures": "textures are left out; materials keep their colours",
}
_RUNS = f"it runs with engine={MUJOCO}; PyBullet reads only the simplest of these files"


def read_mjcf(given: str) -> ModelFile:
    """Find an MJCF and read what its text says.

    Args:
        given: A path, absolute or relative to here or to `pybullet_data`.

    Raises:
        ConfigError: It is not there, is no MJCF, has no joint that moves, or something that a
            robot cannot have here.
    """
    path, name = find_model("--mjcf", given, ".xml")
    try:
        facts = mjcf_facts(path)
    except (EngineError, ValueError) as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise ConfigError(f"--mjcf {path}: {printable(reason)}") from error
    if not facts.joints:
        raise ConfigError(f"--mjcf {path} has no joint that moves. Give the MJCF of a robot.")
    mimic = {one.joint: one for one in facts.couplings}
    undriven = tuple(joint for joint in facts.undriven if joint not in mimic)
    return ModelFile(
        "--mjcf",
        path,
        name=name,
        engine=MUJOCO,
        mimic=mimic,
        is_free=facts.is_free,
        rest=facts.home,
        undriven=undriven,
        remarks=(
            *((facts.left_out[kind], text) for kind, text in _LEFT_OUT.items()),
            (undriven, "joints have no actuator, and no action drives them"),
        ),
        said=(*(text for kind, text in _ALSO.items() if facts.left_out[kind]), _RUNS),
    )
