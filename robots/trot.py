"""How a quadruped stands and steps: a stance, and a trot on the spot beneath the actions."""

from dataclasses import dataclass

import numpy as np

from robots.drives import Drive
from robots.sensors import Floats, State


@dataclass(frozen=True)
class Stance:
    """How a quadruped stands, and from where it cannot stand up again."""

    joint_position: tuple[float, ...]
    """Of the joints that are read [rad]."""
    height_m: float
    """Height of the base's centre of mass when it stands so."""
    lifted: tuple[float, ...]
    """What bends each joint when its leg is lifted for a step [rad]."""
    trot: tuple[bool, ...]
    """Whether each joint's leg is one of the first diagonal pair to step."""
    fallen_m: float
    """Height below which it counts as fallen."""
    power_w: float
    """Mechanical power that counts as 1 in the reward's term for it."""


class TrotDrive(Drive):
    """Adds actions to a trot on the spot: a clock lifts the two diagonal pairs of legs in turn.

    So a policy begins with stepping instead of standing (the idea of Iscen et al. 2018,
    https://arxiv.org/abs/1910.02812). The clock lifts and nothing else: where the feet go is up
    to the actions.
    """

    def __init__(self, drive: Drive, stance: Stance, lift: float, radians_per_step: float) -> None:
        """Wrap the drive of a robot whose actions are positions.

        Args:
            drive: What drives the joints.
            stance: How the legs are lifted.
            lift: Factor on ``stance.lifted``; 0 keeps all feet down.
            radians_per_step: How far the clock goes in a step of control.
        """
        super().__init__(drive.motors)
        self._drive = drive
        self._radians_per_step = radians_per_step
        first = np.array(stance.trot, np.float64)
        self._first_pair = lift * first * stance.lifted
        self._second_pair = lift * (1.0 - first) * stance.lifted

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target positions [rad] within the limits, shape (..., n_joints)."""
        wave = np.sin(self._radians_per_step * np.asarray(state.memory["count"]))[..., None]
        lifted = (
            np.maximum(wave, 0.0) * self._first_pair + np.maximum(-wave, 0.0) * self._second_pair
        )
        return self._drive.targets(action + lifted / self.motors.scale, state)

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors can apply."""
        super().set_strength(strength)
        self._drive.set_strength(strength)

    def command(self, targets: list[float]) -> None:
        """Set the motors' positions."""
        self._drive.command(targets)
