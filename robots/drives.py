"""Action modes: what an action commands, and how the command reaches the motors."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from operator import mul

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.sensors import Floats, State
from robots.simulation import JointInfo, Simulation


class ActionMode(StrEnum):
    """What an action commands."""

    TORQUE = "torque"
    """A torque [N m] or force [N], held over all substeps."""
    VELOCITY = "velocity"
    """A target velocity [rad/s or m/s] of the joint's motor."""
    POSITION = "position"
    """A target position [rad or m] relative to the rest position, within the joint's limits."""
    PD = "pd"
    """As ``position``, but reached by the torques of a PD controller at every physics step."""
    DELTA_POSITION = "delta_position"
    """A target position [rad or m] relative to the present one, within the joint's limits."""
    END_EFFECTOR = "end_effector"
    """A displacement of the end effector [m], by inverse kinematics; with ``ik_turns`` also a
    turn about each axis of the world [rad]."""


@dataclass(frozen=True)
class Motors:
    """The joints that an action drives, and their properties; one value a joint.

    Attributes:
        simulation: Their world.
        body: Their robot.
        joints: The joints.
        read_columns: Their columns among the joints that are read.
        scale: What the action 1 stands for.
        centre: Rest positions [rad or m].
        lower: Lower limits [rad or m].
        upper: Upper limits [rad or m].
        max_force: Strength [N m or N].
        position_gain: Gain of the position error; see ``RobotSpec``.
        velocity_gain: Gain of the velocity error.
    """

    simulation: Simulation
    body: int
    joints: list[JointInfo]
    read_columns: list[int]
    scale: NDArray[np.float64]
    centre: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    max_force: list[float]
    position_gain: list[float] | None
    velocity_gain: list[float] | None

    @property
    def indices(self) -> list[int]:
        """Return the indices of the joints in their body."""
        return [joint.index for joint in self.joints]


class Drive(ABC):
    """Turns actions into targets, for any number of worlds, and targets into motion, for one.

    Attributes:
        n_actions: Entries of an action.
        strength: Factor on the torques or forces that the motors can apply, 1 by default.
    """

    def __init__(self, motors: Motors) -> None:
        self.motors = motors
        self.n_actions = len(motors.joints)
        self.strength = 1.0
        self._forces = motors.max_force

    @property
    def n_targets(self) -> int:
        """Return the length of a row of targets."""
        return len(self.motors.joints)

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors can apply."""
        self.strength = strength
        self._forces = [strength * force for force in self.motors.max_force]

    def targets(self, action: Floats, state: State) -> Floats:
        """Return what an action commands, in units.

        Args:
            action: In [-1, 1], shape (..., n_actions).
            state: The state before the step.

        Returns:
            Torques, velocities, positions or displacements, shape (..., n_actions).
        """
        del state
        targets: Floats = action * self.motors.scale
        return targets

    def row_of_targets(self, action: Floats, state: State) -> list[float]:
        """Return ``targets`` of one world as a row of plain numbers."""
        row: list[float] = self.targets(action, state).tolist()
        return row

    @abstractmethod
    def command(self, targets: list[float]) -> None:
        """Command the motors for the next step.

        Args:
            targets: One row of ``targets``.
        """

    def advance(self, targets: list[float]) -> None:
        """Command the motors and advance the world by one step."""
        self.command(targets)
        self.motors.simulation.step()


class TorqueDrive(Drive):
    """Torques and forces; the world must have been made with ``hold_torques``."""

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._drive = motors.simulation.joint_driver(
            motors.body, motors.indices, pybullet.TORQUE_CONTROL
        )
        self._step = motors.simulation.step
        self._scale: list[float] = motors.scale.tolist()

    def row_of_targets(self, action: Floats, state: State) -> list[float]:
        """Return ``targets`` of one world, faster than NumPy is on so few numbers."""
        del state
        return list(map(mul, action.tolist(), self._scale))

    def command(self, targets: list[float]) -> None:
        """Apply the torques over all substeps."""
        if self.strength != 1.0:
            targets = [self.strength * target for target in targets]
        self._drive(forces=targets)

    def advance(self, targets: list[float]) -> None:
        """Command the motors and advance the world by one step."""
        self.command(targets)
        self._step()


class VelocityDrive(Drive):
    """Target velocities of Bullet's joint motors."""

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._drive = motors.simulation.joint_driver(
            motors.body, motors.indices, pybullet.VELOCITY_CONTROL
        )

    def command(self, targets: list[float]) -> None:
        """Set the motors' velocities."""
        self._drive(targetVelocities=targets, forces=self._forces)


class PositionDrive(Drive):
    """Target positions, relative to the rest position, of Bullet's joint motors."""

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        gains: dict[str, Sequence[float]] = {}
        if motors.position_gain is not None:
            gains["positionGains"] = motors.position_gain
        if motors.velocity_gain is not None:
            gains["velocityGains"] = motors.velocity_gain
        self._drive = motors.simulation.joint_driver(
            motors.body, motors.indices, pybullet.POSITION_CONTROL, **gains
        )

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions within the limits [rad or m]."""
        return self._within_limits(self.motors.centre + super().targets(action, state))

    def command(self, targets: list[float]) -> None:
        """Set the motors' positions."""
        self._drive(targetPositions=targets, forces=self._forces)

    def _within_limits(self, targets: Floats) -> Floats:
        clipped: Floats = np.minimum(np.maximum(targets, self.motors.lower), self.motors.upper)
        return clipped


class DeltaPositionDrive(PositionDrive):
    """Target positions relative to the present ones."""

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions within the limits [rad or m]."""
        present = state.joint_position[..., self.motors.read_columns]
        return self._within_limits(present + action * self.motors.scale)


class PdDrive(PositionDrive):
    """A PD controller: torque = position_gain * error - velocity_gain * velocity, limited.

    The gains are in N m/rad and N m s/rad, or N/m and N s/m. The world must be without
    ``hold_torques``.
    """

    def __init__(self, motors: Motors) -> None:
        super().__init__(motors)
        self._read = motors.simulation.joint_reader(motors.body, motors.indices)
        self._push = motors.simulation.joint_driver(
            motors.body, motors.indices, pybullet.TORQUE_CONTROL
        )
        if motors.position_gain is None or motors.velocity_gain is None:
            raise ValueError(
                f"action_mode=pd with position_gain={motors.position_gain} and "
                f"velocity_gain={motors.velocity_gain}: a PD controller needs both. Set for "
                "example position_gain=50 and velocity_gain=1 [N m/rad, N m s/rad]."
            )
        self._kp: list[float] = motors.position_gain
        self._kd: list[float] = motors.velocity_gain

    def command(self, targets: list[float]) -> None:
        """Refuse: the controller needs the physics steps for itself.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError("A PD controller acts within a step. Use advance.")

    def advance(self, targets: list[float]) -> None:
        """Run the controller at every physics step."""
        simulation = self.motors.simulation
        for _ in repeat(None, simulation.substeps):
            torques = []
            for joint, target, kp, kd, limit in zip(
                self._read(), targets, self._kp, self._kd, self._forces, strict=True
            ):
                torque = kp * (target - joint[0]) - kd * joint[1]
                torques.append(min(max(torque, -limit), limit))
            self._push(forces=torques)
            simulation.substep()
