"""The drive that moves a link to where inverse kinematics says."""

from collections.abc import Callable, Sequence

import numpy as np
import pybullet

from robots.camera import Quaternion
from robots.drives import Drive, Motors, PositionDrive
from robots.sensors import Floats, State


class EndEffectorDrive(Drive):
    """Displaces the end effector by inverse kinematics, and drives the joints there."""

    def __init__(
        self,
        motors: Motors,
        link: int,
        orientation: Quaternion | None,
        turns: bool,
        workspace: tuple[tuple[float, float, float], tuple[float, float, float]] | None,
    ) -> None:
        """Prepare the solver.

        Args:
            motors: Joints that may move; scale holds the displacement of the action 1 [m].
            link: Index of the end effector.
            orientation: World orientation to keep, quaternion (x, y, z, w), or None: any.
            turns: Actions have three more entries, turns about the axes of the world.
            workspace: Lowest and highest world position that is aimed at [m], or None.
        """
        super().__init__(motors)
        self.n_actions = 6 if turns else 3
        self._positions = PositionDrive(motors)
        self._link = link
        self._orientation = orientation
        self._turns = turns
        self._workspace = workspace
        simulation, body = motors.simulation, motors.body
        self._read_link = simulation.bind(pybullet.getLinkState)
        self._solve: Callable[..., Sequence[float]] = simulation.bind(
            pybullet.calculateInverseKinematics
        )
        movable = [joint.index for joint in simulation.movable_joints(body)]
        self._solved_columns = [movable.index(index) for index in motors.indices]

    @property
    def n_targets(self) -> int:
        """Return the length of a row of targets."""
        return self.n_actions

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors can apply."""
        super().set_strength(strength)
        self._positions.set_strength(strength)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return displacements [m], and turns [rad].

        Raises:
            FloatingPointError: If the action is not a number: the solver would hand it to every
                joint, and a reward that looks at an object alone would not show it.
        """
        del state
        displacement: Floats = action * self.motors.scale[: self.n_actions]
        if np.isnan(displacement).any():
            raise FloatingPointError(f"action={action} is not a number. Give values in [-1, 1].")
        return displacement

    def command(self, targets: list[float]) -> None:
        """Solve for joint positions near the present ones, and drive there."""
        body = self.motors.body
        pose = self._read_link(body, self._link, computeForwardKinematics=1)
        position = [here + step for here, step in zip(pose[4], targets[:3], strict=True)]
        if self._workspace is not None:
            low, high = self._workspace
            position = [min(max(x, a), b) for x, a, b in zip(position, low, high, strict=True)]
        orientation = self._orientation
        if self._turns:
            turn = pybullet.getQuaternionFromEuler(targets[3:])
            orientation = pybullet.multiplyTransforms(
                (0, 0, 0), turn, (0, 0, 0), orientation or pose[5]
            )[1]
        goal = (position,) if orientation is None else (position, orientation)
        solution = self._solve(body, self._link, *goal, maxNumIterations=20, residualThreshold=1e-4)
        chosen = np.array([solution[column] for column in self._solved_columns])
        self._positions.command(self._positions._within_limits(chosen).tolist())
