"""A robot: a URDF in a simulation, its joints, and what an action does to them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Vector3
from robots.simulation import JointInfo, Simulation
from robots.state import read_entries, read_same, read_vector


class ActionMode(StrEnum):
    """What an action commands."""

    TORQUE = "torque"
    """A torque [N m] or force [N], held over all substeps."""
    VELOCITY = "velocity"
    """A target velocity [rad/s or m/s] of the joint's motor."""
    POSITION = "position"
    """A target position [rad or m] relative to the rest position, within the joint's limits."""


class RobotState(NamedTuple):
    """The joints of one robot, shape (n_joints,), or of many worlds, shape (..., n_joints)."""

    joint_position: NDArray[np.float64]
    """Joint positions [rad or m]."""
    joint_velocity: NDArray[np.float64]
    """Joint velocities [rad/s or m/s]."""


@dataclass(frozen=True)
class RobotSpec:
    """Everything that makes a robot, before there is a simulation."""

    urdf: str
    """File of the URDF, also searched for in ``pybullet_data``."""
    action_scale: float
    """What the action 1 stands for: [N m or N], [rad/s or m/s] or [rad or m] by mode."""
    action_mode: ActionMode = ActionMode.TORQUE
    """What an action commands."""
    joints: str = ".*"
    """Pattern of the names of the joints that are read and reset; the others stay passive."""
    actuated: str = ".*"
    """Pattern of the names, among those joints, that actions drive."""
    rest_position: tuple[float, ...] | None = None
    """Rest position of the read joints [rad or m]; zeros if None."""
    max_force: float | None = None
    """Strength of the motors [N m or N] in velocity and position mode; the URDF's if None."""
    base_position: Vector3 = (0.0, 0.0, 0.0)
    """World position of the base [m]."""
    fixed_base: bool = True
    """Whether the base is bolted to the world."""


class Robot:
    """A ``RobotSpec`` loaded into a simulation.

    Attributes:
        body: Id of the body in the simulation.
        joints: The joints that are read, in the order of the state's last dimension.
        actuated: The joints that are driven, in the order of the action.
        rest_position: [rad or m], shape (n_joints,).
    """

    def __init__(self, simulation: Simulation, spec: RobotSpec) -> None:
        """Load the robot and put it into its rest position.

        Args:
            simulation: World to load it into. Made with ``hold_torques`` for torques, and
                without for the other modes.
            spec: What to load.

        Raises:
            ValueError: If a pattern matches no joint, or the rest position has a wrong length.
        """
        self.body = simulation.load_urdf(
            spec.urdf, position=spec.base_position, fixed_base=spec.fixed_base
        )
        movable = simulation.movable_joints(self.body)
        self._urdf_name = PurePath(spec.urdf).name
        self._movable = [joint.name for joint in movable]
        self._movable_indices = [joint.index for joint in movable]
        self.joints = _matching("joints", spec.joints, movable)
        self.actuated = _matching("actuated", spec.actuated, self.joints)
        rest = (0.0,) * len(self.joints) if spec.rest_position is None else spec.rest_position
        if len(rest) != len(self.joints):
            names = ", ".join(joint.name for joint in self.joints)
            raise ValueError(
                f"rest_position={rest} has {len(rest)} values for {len(self.joints)} joints. "
                f"Give one each for: {names}."
            )
        self.rest_position = np.array(rest, np.float64)
        self._scale = np.full(len(self.actuated), spec.action_scale)
        self._mode = ActionMode(spec.action_mode)
        limits = [
            (joint.lower, joint.upper) if joint.lower < joint.upper else (-np.inf, np.inf)
            for joint in self.actuated
        ]
        self._lower, self._upper = np.array(limits, np.float64).T
        self._centre = self.rest_position[[self.joints.index(joint) for joint in self.actuated]]
        self._simulation = simulation
        self._joint_indices = [joint.index for joint in self.joints]
        self._read_joints = simulation.joint_reader(self.body, self._joint_indices)
        self._drive, self._target_name = self._make_driver(spec)
        self.reset(RobotState(self.rest_position, np.zeros(len(self.joints))))

    def targets(self, action: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what an action commands, in units.

        Args:
            action: In [-1, 1], shape (..., n_actuated).

        Returns:
            Torques, velocities or positions by action mode, shape (..., n_actuated).
        """
        scaled: NDArray[np.float64] = action * self._scale
        if self._mode is not ActionMode.POSITION:
            return scaled
        targets: NDArray[np.float64] = np.maximum(self._centre + scaled, self._lower)
        np.minimum(targets, self._upper, out=targets)
        return targets

    def apply(self, action: NDArray[np.float64]) -> None:
        """Command the actuated joints for the next step.

        Args:
            action: In [-1, 1], shape (n_actuated,).
        """
        self._drive(**{self._target_name: self.targets(action).tolist()})

    def read(self) -> RobotState:
        """Return the state of the joints in fresh arrays, shape (n_joints,)."""
        joints = self._read_joints()
        return RobotState(
            np.array([joint[0] for joint in joints]), np.array([joint[1] for joint in joints])
        )

    def reset(self, state: RobotState) -> None:
        """Put the joints into a state, arrays of shape (n_joints,)."""
        self._simulation.reset_joints(self.body, self._joint_indices, *state)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all movable joints, the unread ones too, and whose it is."""
        states = self._simulation.joint_reader(self.body, self._movable_indices)()
        return {
            "urdf": self._urdf_name,
            "joints": list(self._movable),
            "position": np.array([joint[0] for joint in states], np.float64),
            "velocity": np.array([joint[1] for joint in states], np.float64),
        }

    def read_state_dict(self, state: object) -> RobotState:
        """Return the state of all movable joints that ``state_dict`` returned; place nothing.

        Raises:
            ValueError: If it is of another robot, or not in order.
        """
        parts = read_entries("robot", state, ("urdf", "joints", "position", "velocity"))
        read_same("robot.urdf", parts["urdf"], self._urdf_name)
        read_same("robot.joints", parts["joints"], self._movable)
        count = len(self._movable)
        return RobotState(
            read_vector("robot.position", parts["position"], count),
            read_vector("robot.velocity", parts["velocity"], count),
        )

    def reset_movable(self, state: RobotState) -> None:
        """Put all movable joints into a state, arrays of shape (n_movable,)."""
        self._simulation.reset_joints(self.body, self._movable_indices, *state)

    def _make_driver(self, spec: RobotSpec) -> tuple[Callable[..., None], str]:
        """Return the function that commands the joints, and the name its targets go by."""
        indices = [joint.index for joint in self.actuated]
        driver = self._simulation.joint_driver
        if self._mode is ActionMode.TORQUE:
            return driver(self.body, indices, pybullet.TORQUE_CONTROL), "forces"
        forces = [
            joint.max_force if spec.max_force is None else spec.max_force for joint in self.actuated
        ]
        if self._mode is ActionMode.VELOCITY:
            mode, name = pybullet.VELOCITY_CONTROL, "targetVelocities"
        else:
            mode, name = pybullet.POSITION_CONTROL, "targetPositions"
        return driver(self.body, indices, mode, forces=forces), name


def _matching(field: str, pattern: str, joints: list[JointInfo]) -> list[JointInfo]:
    """Return the joints whose whole name matches the pattern of a field of ``RobotSpec``."""
    chosen = [joint for joint in joints if re.fullmatch(pattern, joint.name)]
    if not chosen:
        names = ", ".join(joint.name for joint in joints) or "none"
        raise ValueError(f"{field}={pattern!r} matches no joint. Choose among: {names}.")
    return chosen
