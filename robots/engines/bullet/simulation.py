"""A PyBullet world; the calls of a step are bound once and read or write at once."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

import pybullet
from numpy.typing import NDArray

from robots.camera import Camera, Quaternion
from robots.engines.bullet.bodies import Bodies
from robots.engines.bullet.pictures import camera_image, colours_of, shaded_image
from robots.simulation import POSITION_GAIN, VELOCITY_GAIN, InverseKinematics, Pose


class BulletSimulation(Bodies):
    """A PyBullet world. ``robots.engines.bullet.native`` makes its calls for many at once."""

    def joint_reader(
        self, body: int, joints: Sequence[int], efforts: bool = False
    ) -> Callable[[], list[float]]:
        """Return a function that reads n joints."""
        call = partial(self.bind(pybullet.getJointStates), body, joints)

        def read() -> list[float]:
            states = call()
            row, velocities = [], []
            for position, velocity, _, _ in states:
                row.append(position)
                velocities.append(velocity)
            row += velocities
            if efforts:
                row += [state[3] for state in states]
            return row

        return read

    def pose_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the pose of the base's centre of mass."""
        return partial(self.bind(pybullet.getBasePositionAndOrientation), body)

    def velocity_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the base's velocity [m/s] and angular velocity [rad/s]."""
        return partial(self.bind(pybullet.getBaseVelocity), body)

    def link_reader(
        self, body: int, links: Sequence[int], as_left: bool = False
    ) -> Callable[[], list[list[float]]]:
        """Return a function that reads n links, none of which is the base."""
        # Without forward kinematics the poses would be those before the last step.
        call = partial(
            self.bind(pybullet.getLinkStates),
            body,
            links,
            computeLinkVelocity=1,
            computeForwardKinematics=0 if as_left else 1,
        )
        entries = [itemgetter(entry) for entry in ((0, 1, 6, 7) if as_left else (4, 5, 6, 7))]

        def read() -> list[list[float]]:
            states = call()
            return [list(chain.from_iterable(map(entry, states))) for entry in entries]

        return read

    def contact_reader(self, body: int, links: Sequence[int]) -> Callable[[], list[float]]:
        """Return a function that reads which of n links touch another body: n numbers, 1 or 0."""
        call = partial(self.bind(pybullet.getContactPoints), body)
        columns = {link: column for column, link in enumerate(links)}

        def read() -> list[float]:
            touched = [0.0] * len(columns)
            for point in call():
                # Of a contact, the first body need not be the one that was asked for.
                link = point[3] if point[1] == body else point[4]
                if point[1] != point[2] and link in columns:
                    touched[columns[link]] = 1.0
            return touched

        return read

    def ray_caster(self) -> Callable[[Sequence[Any], Sequence[Any]], list[float]]:
        """Return a function that follows n rays from points to points in the world [m]."""
        call = self.bind(pybullet.rayTestBatch)

        def cast(starts: Sequence[Any], ends: Sequence[Any]) -> list[float]:
            return [hit[2] for hit in call(starts, ends, numThreads=1)]

        return cast

    def torque_motors(self, body: int, joints: Sequence[int]) -> Callable[[list[float]], None]:
        """Return a function that applies n torques or forces over the next step or substep."""
        call = self.joint_driver(body, joints, pybullet.TORQUE_CONTROL)

        def drive(torques: list[float]) -> None:
            call(forces=torques)

        return drive

    def velocity_motors(
        self, body: int, joints: Sequence[int]
    ) -> Callable[[list[float], list[float]], None]:
        """Return a function that takes n velocities to reach, and n torques or forces at most."""
        call = self.joint_driver(body, joints, pybullet.VELOCITY_CONTROL)
        # A motor's strength is that over a whole call, not over each of its substeps.
        share = self.calls / self.substeps

        def drive(velocities: list[float], forces: list[float]) -> None:
            if share != 1.0:
                forces = [share * force for force in forces]
            call(targetVelocities=velocities, forces=forces)

        return drive

    def position_motors(
        self,
        body: int,
        joints: Sequence[int],
        position_gains: Sequence[float] | None = None,
        velocity_gains: Sequence[float] | None = None,
        max_velocities: Sequence[float] | None = None,
    ) -> Callable[[list[float], list[float]], None]:
        """Return the same for positions [rad or m]."""
        if max_velocities is not None:
            count = len(joints)
            kp, kd = position_gains or [POSITION_GAIN] * count, velocity_gains
            return self._limited_motors(
                body, joints, kp, kd or [VELOCITY_GAIN] * count, max_velocities
            )
        gains = {"positionGains": position_gains, "velocityGains": velocity_gains}
        fixed = {name: gain for name, gain in gains.items() if gain}
        call = self.joint_driver(body, joints, pybullet.POSITION_CONTROL, **fixed)

        def drive(positions: list[float], forces: list[float]) -> None:
            call(targetPositions=positions, forces=forces)

        return drive

    def _limited_motors(
        self,
        body: int,
        joints: Sequence[int],
        position_gains: Sequence[float],
        velocity_gains: Sequence[float],
        max_velocities: Sequence[float],
    ) -> Callable[[list[float], list[float]], None]:
        """Return motors with highest velocities, commanded one after the other.

        Of PyBullet's calls, only that for one joint heeds them.
        """
        call = partial(self.bind(pybullet.setJointMotorControl2), body)
        motors = [
            partial(
                call,
                joint,
                pybullet.POSITION_CONTROL,
                positionGain=position_gain,
                velocityGain=velocity_gain,
                maxVelocity=max_velocity,
            )
            for joint, position_gain, velocity_gain, max_velocity in zip(
                joints, position_gains, velocity_gains, max_velocities, strict=True
            )
        ]

        def drive(positions: list[float], forces: list[float]) -> None:
            for motor, position, force in zip(motors, positions, forces, strict=True):
                motor(targetPosition=position, force=force)

        return drive

    def inverse_kinematics(self, body: int, link: int, joints: Sequence[int]) -> InverseKinematics:
        """Return the solver for a link, whose solutions are those of n joints."""
        return _Kinematics(self, body, link, joints)

    def picture(self, camera: Camera) -> NDArray[Any]:
        """Return what a camera sees as RGB, uint8, shape (height, width, 3)."""
        return camera_image(self, camera)

    def shaded_picture(self, camera: Camera, unshaded: Sequence[int] = ()) -> NDArray[Any]:
        """Return the same with shadows; bodies of many small parts may be left out of them."""
        return shaded_image(self, camera, unshaded)

    def colours_of(self, camera: Camera, body: int) -> NDArray[Any]:
        """Return the pixels of one body that a camera sees, shape (n, 3)."""
        return colours_of(self, camera, body)


class _Kinematics(InverseKinematics):
    """Bullet's solver for one link."""

    def __init__(self, world: Bodies, body: int, link: int, joints: Sequence[int]) -> None:
        read = partial(world.bind(pybullet.getLinkState), body, link)
        self._read = partial(read, computeForwardKinematics=1)
        self._solve = partial(world.bind(pybullet.calculateInverseKinematics), body, link)
        self._columns = solved_columns(world, body, joints)

    def pose(self) -> Pose:
        """Return where the link's frame is now."""
        state = self._read()
        return state[4], state[5]

    def solve(self, position: Sequence[float], orientation: Quaternion | None) -> list[float]:
        """Return positions of the joints [rad or m], near the present ones."""
        goal = (position,) if orientation is None else (position, orientation)
        solution = self._solve(*goal, maxNumIterations=20, residualThreshold=1e-4)
        return [solution[column] for column in self._columns]

    def turned(self, orientation: Quaternion, angles: Sequence[float]) -> Quaternion:
        """Return an orientation turned about the axes of the world [rad], as Bullet rounds it."""
        turn, none = pybullet.getQuaternionFromEuler(angles), (0, 0, 0)
        turned: Quaternion = pybullet.multiplyTransforms(none, turn, none, orientation)[1]
        return turned


def solved_columns(world: Bodies, body: int, joints: Sequence[int]) -> list[int]:
    """Return the columns of joints in what Bullet's inverse kinematics solves."""
    movable = [joint.index for joint in world.movable_joints(body)]
    return [movable.index(joint) for joint in joints]
