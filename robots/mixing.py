"""Drives for robots whose actions are not one to a joint, such as wheeled ones."""

from collections.abc import Sequence

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.drives import Drive, Motors
from robots.sensors import Floats, State


class MixedDrive(Drive):
    """Shares the entries of an action out among the motors of another drive.

    With the rows (1, -1) and (1, 1) for a left and a right wheel, the first entry drives ahead and
    the second turns to the left.
    """

    def __init__(self, drive: Drive, mixing: Sequence[Sequence[float]]) -> None:
        """Prepare the shares.

        Args:
            drive: What moves the motors.
            mixing: Share of every entry of the action in the command of each motor, shape
                (n_motors, n_actions).

        Raises:
            ValueError: If it has a wrong number of rows, or rows of different length.
        """
        super().__init__(drive.motors)
        widths = {len(row) for row in mixing}
        if len(mixing) != drive.n_actions or len(widths) != 1 or 0 in widths:
            names = ", ".join(joint.name for joint in drive.motors.joints)
            raise ValueError(
                f"mixing={mixing} must have {drive.n_actions} rows of one length, a column for "
                f"each entry of the action. Give one row each for: {names}."
            )
        (self.n_actions,) = widths
        self._drive = drive
        shares = np.array(mixing, np.float64)
        self._shares: list[NDArray[np.float64]] = [
            shares[:, entry].copy() for entry in range(self.n_actions)
        ]

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors can apply."""
        super().set_strength(strength)
        self._drive.set_strength(strength)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return the targets of the motors, whose shares are clipped to [-1, 1]."""
        # One column after the other, since a matrix product adds in an order of its own.
        mixed = action[..., :1] * self._shares[0]
        for entry in range(1, self.n_actions):
            mixed = mixed + action[..., entry : entry + 1] * self._shares[entry]
        return self._drive.targets(np.minimum(np.maximum(mixed, -1.0), 1.0), state)

    def command(self, targets: list[float]) -> None:
        """Command the motors."""
        self._drive.command(targets)

    def advance(self, targets: list[float]) -> None:
        """Command the motors and advance the world by one step."""
        self._drive.advance(targets)


class CombinedDrive(Drive):
    """Target velocities for some joints and target positions for the others, as in a car."""

    def __init__(self, motors: Motors, positioned: Sequence[int]) -> None:
        """Prepare the two kinds of motors.

        Args:
            motors: All joints; scale is in [rad/s or m/s], of the positioned [rad or m].
            positioned: Columns, among them, of those that are driven to positions.
        """
        super().__init__(motors)
        columns = range(len(motors.joints))
        self._positioned = list(positioned)
        self._turning = [column for column in columns if column not in self._positioned]
        held = np.isin(columns, self._positioned)
        self._centre = np.where(held, motors.centre, 0.0)
        self._lower = np.where(held, motors.lower, -np.inf)
        self._upper = np.where(held, motors.upper, np.inf)
        simulation, body, indices = motors.simulation, motors.body, motors.indices
        gains = {
            name: [gain[column] for column in self._positioned]
            for name, gain in (
                ("positionGains", motors.position_gain),
                ("velocityGains", motors.velocity_gain),
            )
            if gain is not None
        }
        self._turn = simulation.joint_driver(
            body, [indices[column] for column in self._turning], pybullet.VELOCITY_CONTROL
        )
        self._position = simulation.joint_driver(
            body,
            [indices[column] for column in self._positioned],
            pybullet.POSITION_CONTROL,
            **gains,
        )

    def targets(self, action: Floats, state: State) -> Floats:
        """Return target velocities, and target positions within the limits."""
        targets = self._centre + super().targets(action, state)
        clipped: Floats = np.minimum(np.maximum(targets, self._lower), self._upper)
        return clipped

    def command(self, targets: list[float]) -> None:
        """Set both kinds of motors."""
        forces, turning, positioned = self._forces, self._turning, self._positioned
        self._turn(
            targetVelocities=[targets[column] for column in turning],
            forces=[forces[column] for column in turning],
        )
        self._position(
            targetPositions=[targets[column] for column in positioned],
            forces=[forces[column] for column in positioned],
        )
