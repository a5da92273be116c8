"""What is looked for in a log: the physical parameters of a robot, and how far they may be off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.errors import ConfigError, closest
from robots.env import BaseRobotEnv
from robots.simulation import JointInfo

Floats = NDArray[np.float64]
LATENCY = "latency"
FACTORS = ("mass", "friction", "motor_strength")
OF_JOINTS = ("joint_damping", "joint_friction", "armature")
# A factor is within this of 1, in its logarithm, for two robots of three: 0.6 to 1.65.
_FACTOR_SPREAD = 0.5
# What slows a joint that turns freely by its own speed in a second [1/s], or by 2 rad/s^2 [m/s^2].
_SPREADS = {"joint_damping": 1.0, "joint_friction": 2.0, "armature": 0.5}
_PROBE = 1e-6


@dataclass(frozen=True)
class Parameter:
    """One number of a robot.

    Fits go over ``u``, which is 0 for the nominal robot and of the order of 1 for others: a factor
    is ``exp(spread * u)``, what is added ``spread * u``, and not negative.
    """

    name: str  # As in `env.kwargs.randomization`
    joint: str | None  # Whose it is; None for the whole robot
    spread: float  # How far it may be from its nominal value

    @property
    def is_factor(self) -> bool:
        """Whether it multiplies something."""
        return self.name in FACTORS

    @property
    def nominal(self) -> float:
        """What it is in the robot's file."""
        return 1.0 if self.is_factor else 0.0

    def value(self, u: Any) -> Any:
        """Return the value of ``u``."""
        return np.exp(self.spread * u) if self.is_factor else self.spread * u

    def u_of(self, value: float) -> float:
        """Return the ``u`` of a value."""
        return float(np.log(value)) / self.spread if self.is_factor else value / self.spread

    def __str__(self) -> str:
        return self.name if self.joint is None else f"{self.name}/{self.joint}"


def drawn_of(parameters: Sequence[Parameter], u: Floats, env: BaseRobotEnv) -> dict[str, Any]:
    """Return what a randomization would have drawn for these parameters of a robot."""
    drawn: dict[str, Any] = {}
    for parameter, value in zip(parameters, u, strict=True):
        number = float(parameter.value(value))
        if parameter.joint is None:
            drawn[parameter.name] = number
        else:
            names = [joint.name for joint in joints_of(parameter.name, env)]
            row = drawn.setdefault(parameter.name, [0.0] * len(names))
            row[names.index(parameter.joint)] = number
    return drawn


def joints_of(name: str, env: BaseRobotEnv) -> list[JointInfo]:
    """Return the joints that have a parameter."""
    robot, simulation = env.robot, env.simulation
    if name == "armature" and not simulation.has_armature:
        return []
    return (
        robot.without_motor if name == "joint_friction" else simulation.movable_joints(robot.body)
    )


def randomization_of(env: BaseRobotEnv) -> dict[str, Any]:
    """Return a randomization that changes nothing, with which all parameters can be set."""
    nominal: dict[str, Any] = {"mass": 1.0, "motor_strength": 1.0}
    if env.robot.free_base and env.world.ground is not None:
        nominal["friction"] = 1.0
    joints = {name: 0.0 for name in OF_JOINTS if joints_of(name, env)}
    return nominal | {name: {"constant": 0.0, "each": True} for name in joints}


def parameters_of(env: BaseRobotEnv) -> list[Parameter]:
    """Return the parameters of a robot, which was made with ``randomization_of``.

    What is added to a joint is measured by its inertia: how much a little damping slows it down
    when it moves alone, and nothing drives it.
    """
    assert env.randomizer is not None
    draws = env.randomizer.draws
    found = [Parameter(name, None, _FACTOR_SPREAD) for name in FACTORS if name in draws]
    inertia = {joint.name: _inertia(env, joint) for joint in env.robot.joints}
    for name in OF_JOINTS:
        found += [
            Parameter(name, joint.name, _SPREADS[name] * inertia[joint.name])
            for joint in (joints_of(name, env) if name in draws else [])
            # One that nothing can slow down follows another joint.
            if inertia.get(joint.name, 0.0) > 0.0
        ]
    return found


def _inertia(env: BaseRobotEnv, joint: JointInfo) -> float:
    """Return what a joint moves [kg m^2 or kg], 0 if damping does not slow it."""
    assert env.randomizer is not None
    robot, speeds = env.robot, []
    column = [one.name for one in robot.joints].index(joint.name)
    movable = [one.name for one in env.simulation.movable_joints(robot.body)]
    velocity = np.zeros(len(robot.joints))
    velocity[column] = 1.0
    for damping in (0.0, _PROBE):
        row = [damping * (name == joint.name) for name in movable]
        env.randomizer.apply({"joint_damping": row})
        env.world.start(robot.at_rest._replace(joint_velocity=velocity))
        env.simulation.step()
        speeds.append(env.world.sensors.read()[len(robot.joints) + column])
    env.randomizer.apply({"joint_damping": [0.0] * len(movable)})
    slower = speeds[0] - speeds[1]
    return _PROBE * env.simulation.step_s / slower if slower > 0 else 0.0


def read_known(texts: Sequence[str], parameters: Sequence[Parameter]) -> dict[str, float]:
    """Return what the user knows, by the parameters' texts, from NAME=VALUE or NAME/JOINT=VALUE.

    Raises:
        ConfigError: A name is of no parameter of the robot, or a value not valid.
    """
    known: dict[str, float] = {}
    names = [*map(str, parameters), *dict.fromkeys(p.name for p in parameters), LATENCY]
    for text in texts:
        name, _, given = text.partition("=")
        if name not in names:
            near = closest(name, names)
            hint = f" Did you mean {near!r}?" if near else ""
            raise ConfigError(
                f"--known {text}: {name!r} is no parameter of this robot.{hint} Choose among: "
                f"{', '.join(dict.fromkeys(names))}."
            )
        try:
            value = float(given)
        except ValueError:
            value = np.nan
        is_whole = name != LATENCY or value == int(np.nan_to_num(value))
        lowest = 1e-9 if name.partition("/")[0] in FACTORS else 0.0
        if not (lowest <= value < np.inf and is_whole):
            raise ConfigError(
                f"--known {text}: needs a number, above 0 for a factor, whole for the latency. "
                f"Write for example {name}=1."
            )
        chosen = [str(p) for p in parameters if name in (p.name, str(p))] or [LATENCY]
        known |= dict.fromkeys(chosen, value)
    return known


def with_known(
    parameters: Sequence[Parameter], known: Mapping[str, float]
) -> tuple[list[Parameter], Floats]:
    """Return the parameters, and their ``u`` before the fit: what is known, else the nominal 0."""
    return list(parameters), np.array([p.u_of(known.get(str(p), p.nominal)) for p in parameters])
