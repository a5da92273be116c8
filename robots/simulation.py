"""What can be loaded into a world, and its batched reads and writes."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, TypeVar

import pybullet
import pybullet_data

from robots.ballast import BALLAST, with_ballast
from robots.camera import Quaternion, Vector3
from robots.client import Client

_MOVABLE = (pybullet.JOINT_REVOLUTE, pybullet.JOINT_PRISMATIC)

# What Bullet's motors have if they are given none.
POSITION_GAIN, VELOCITY_GAIN = 0.1, 1.0

_UPRIGHT: Quaternion = (0.0, 0.0, 0.0, 1.0)
_T = TypeVar("_T")


@dataclass(frozen=True)
class JointInfo:
    """What a URDF states about one movable joint."""

    index: int
    """Index of the joint, and of its child link, in its body."""
    name: str
    """Name in the URDF."""
    lower: float
    """Lower limit [m or rad]; above ``upper`` where the joint has no limits."""
    upper: float
    """Upper limit [m or rad]."""
    max_force: float
    """Effort limit [N or N m]."""
    max_velocity: float = 0.0
    """Velocity limit [m/s or rad/s]; 0 where the file gives none."""


class Mimic(NamedTuple):
    """A joint that a gear couples to another one: position = multiplier * leader + offset."""

    joint: str
    """Name of the joint that follows."""
    leader: str
    """Name of the joint that it follows."""
    multiplier: float = 1.0
    """Its motion for a motion of 1 of the leader."""
    offset: float = 0.0
    """Its position where the leader is at 0 [rad or m]."""


@dataclass(frozen=True)
class LinkDynamics:
    """Mass and friction of one link."""

    mass_kg: float
    inertia: tuple[float, float, float]
    """Moments about the principal axes [kg m^2]."""
    friction: float
    """Coefficient of lateral friction."""


def matching(field: str, pattern: str, named: Iterable[tuple[str, _T]], what: str) -> list[_T]:
    """Return what the pattern of a specification's field matches by its whole name.

    Raises:
        ValueError: If it matches nothing.
    """
    named = list(named)
    chosen = [one for name, one in named if re.fullmatch(pattern, name)]
    if not chosen:
        names = ", ".join(name for name, _ in named) or "none"
        raise ValueError(f"{field}={pattern!r} matches no {what}. Choose among: {names}.")
    return chosen


def _load_with_ballast(reach_m: float, path: str, *args: Any, **more: Any) -> int:
    """Load a URDF with the links of ``robots.ballast``."""
    folder = pybullet_data.getDataPath()
    found = next((p for p in (Path(path), Path(folder) / path) if p.is_file()), None)
    if found is None:
        raise pybullet.error(path)
    text = with_ballast(found, reach_m)
    with NamedTemporaryFile("w", suffix=".urdf", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        body: int = pybullet.loadURDF(file.name, *args, **more)
    return body


# Paths of the models that this process has loaded, as they were given.
LOADED_MODELS: set[str] = set()


class Simulation(Client):
    """A PyBullet world with bodies; the calls of a step are bound once and read or write at once.

    ``robots.native`` makes the same calls for many worlds at once.

    Attributes:
        draws: Whether images are drawn of it. If not, URDFs are loaded without what bodies look
            like, which is up to half of their memory and of the time.
    """

    draws = True

    def load_urdf(
        self,
        path: str,
        *,
        position: Vector3 = (0, 0, 0),
        orientation: Quaternion = _UPRIGHT,
        fixed_base: bool = True,
        flags: int = 0,
        keep_damping: bool = False,
        ballast_m: float | None = None,
    ) -> int:
        """Load a body, with its default joint motors and all damping switched off.

        Args:
            path: File of the URDF, also searched for in ``pybullet_data``.
            position: World position of the base [m].
            orientation: World orientation of the base, quaternion (x, y, z, w).
            fixed_base: Whether the base is bolted to the world.
            flags: PyBullet's ``URDF_*`` flags.
            keep_damping: Leave the damping as the file and Bullet have it.
            ballast_m: Add the links of ``robots.ballast`` at this distance.

        Returns:
            The id of the body.

        Raises:
            FileNotFoundError: If PyBullet cannot load the file.
        """
        load, place = pybullet.loadURDF, (position, orientation)
        if not self.draws:
            flags |= pybullet.URDF_IGNORE_VISUAL_SHAPES
        if ballast_m is not None:
            load = partial(_load_with_ballast, ballast_m)
        body: int = self._load("urdf", load, path, *place, useFixedBase=fixed_base, flags=flags)
        self.make_passive(body, keep_damping=keep_damping)
        return body

    def load_mjcf(self, path: str, *, flags: int = 0, keep_damping: bool = False) -> list[int]:
        """Load the bodies of an MJCF file, with the options and errors of ``load_urdf``."""
        bodies = list(self._load("mjcf", pybullet.loadMJCF, path, flags=flags))
        for body in bodies:
            self.make_passive(body, keep_damping=keep_damping)
        return bodies

    def load_sdf(self, path: str) -> list[int]:
        """Load the bodies of an SDF file, such as a ground, which do not move."""
        return list(self._load("sdf", pybullet.loadSDF, path))

    def make_passive(self, body: int, *, keep_damping: bool = False) -> None:
        """Switch off the motors, and the damping, that PyBullet gives every body."""
        joints = [joint.index for joint in self.movable_joints(body)]
        if joints:
            no_force = [0.0] * len(joints)
            self.joint_driver(body, joints, pybullet.VELOCITY_CONTROL, forces=no_force)()
        if not keep_damping:
            for link in self.link_dynamics(body):
                self.change_dynamics(body, link, linearDamping=0, angularDamping=0, jointDamping=0)

    def movable_joints(self, body: int) -> list[JointInfo]:
        """Return the revolute and prismatic joints of a body in the order of its URDF."""
        return [
            JointInfo(info[0], info[1].decode(), info[8], info[9], info[10], info[11])
            for info in self._joint_infos(body)
            if info[2] in _MOVABLE
        ]

    def links(self, body: int) -> dict[str, int]:
        """Return the index of every link of a body by name; the base is -1."""
        base = self.bind(pybullet.getBodyInfo)(body)[0].decode()
        links = {base: -1, **{info[12].decode(): info[0] for info in self._joint_infos(body)}}
        return {name: link for name, link in links.items() if not name.startswith(BALLAST)}

    def ballast(self, body: int) -> list[int]:
        """Return the links that ``load_urdf`` added along +x, -x, +y, -y, +z and -z, if any."""
        found = {info[12].decode(): info[0] for info in self._joint_infos(body)}
        return [found[name] for name in sorted(found) if name.startswith(BALLAST)]

    def trunk(self, body: int) -> int:
        """Return the heaviest link that is, by fixed joints alone, one with the base."""
        masses, rigid = self.link_dynamics(body), [-1]
        for info in self._joint_infos(body):
            if info[2] == pybullet.JOINT_FIXED and info[16] in rigid and info[0] in masses:
                rigid.append(info[0])
        return max(rigid, key=lambda link: masses[link].mass_kg)

    def link_dynamics(self, body: int) -> dict[int, LinkDynamics]:
        """Return mass, inertia and friction of every link of a body by index; the base is -1."""
        read = self.bind(pybullet.getDynamicsInfo)
        links = range(-1, self.bind(pybullet.getNumJoints)(body))
        added = self.ballast(body)
        infos = {link: read(body, link) for link in links if link not in added}
        return {link: LinkDynamics(i[0], tuple(i[2]), i[1]) for link, i in infos.items()}

    def change_dynamics(self, body: int, link: int, **values: Any) -> None:
        """Change what PyBullet's ``changeDynamics`` can of one link; -1 is the base.

        A new ``mass`` makes Bullet recompute the inertia from the shapes: give
        ``localInertiaDiagonal`` with it.
        """
        self.bind(pybullet.changeDynamics)(body, link, **values)

    def joint_reader(self, body: int, joints: Sequence[int]) -> Callable[[], Sequence[Any]]:
        """Return a function that reads n joints in one call, as PyBullet's ``getJointStates``."""
        return partial(self.bind(pybullet.getJointStates), body, joints)

    def joint_driver(
        self, body: int, joints: Sequence[int], mode: int, **fixed: Sequence[float]
    ) -> Callable[..., None]:
        """Return a function that commands n joints for the next ``step`` in one call.

        Args:
            body: Id of the body.
            joints: Indices of n joints.
            mode: PyBullet's ``TORQUE_CONTROL``, ``VELOCITY_CONTROL`` or ``POSITION_CONTROL``.
            fixed: Arguments of ``setJointMotorControlArray`` that stay the same, n values each;
                the function takes the others by keyword.
        """
        return partial(self.bind(pybullet.setJointMotorControlArray), body, joints, mode, **fixed)

    def limited_position_driver(
        self,
        body: int,
        joints: Sequence[int],
        position_gains: Sequence[float],
        velocity_gains: Sequence[float],
        max_velocities: Sequence[float],
    ) -> Callable[..., None]:
        """Return ``joint_driver`` for positions, with the highest velocities [rad/s or m/s].

        It commands one joint after the other: of PyBullet's calls, only that for one heeds them.
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

        def drive(*, targetPositions: Sequence[float], forces: Sequence[float]) -> None:  # noqa: N803
            for motor, position, force in zip(motors, targetPositions, forces, strict=True):
                motor(targetPosition=position, force=force)

        return drive

    def couple(
        self,
        body: int,
        link: int,
        other: int,
        *,
        ratio: float = 1.0,
        offset: float = 0.0,
        max_force: float = 50,
    ) -> None:
        """Make the joint above a link follow that above another one, as a gear would.

        Args:
            body: Id of the body.
            link: Index of the joint that follows.
            other: Index of the joint that leads.
            ratio: Motion of the one for a motion of 1 of the other.
            offset: Position of the one where the other is at 0 [rad or m].
            max_force: Strength of the gear [N m or N].
        """
        gear = self.bind(pybullet.createConstraint)(
            body, link, body, other, pybullet.JOINT_GEAR, (1, 0, 0), (0, 0, 0), (0, 0, 0)
        )
        self.bind(pybullet.changeConstraint)(
            gear,
            gearRatio=-ratio,
            relativePositionTarget=offset,
            erp=0.1,
            maxForce=max_force,
        )

    def reset_joints(
        self, body: int, joints: Sequence[int], position: Iterable[float], velocity: Iterable[float]
    ) -> None:
        """Set positions [m or rad] and velocities [m/s or rad/s] of joints, outside of physics."""
        values = ([[float(value)] for value in row] for row in (position, velocity))
        self.bind(pybullet.resetJointStatesMultiDof)(body, joints, *values)

    def reset_base(
        self,
        body: int,
        position: Iterable[float],
        orientation: Iterable[float],
        velocity: Iterable[float] = (0.0, 0.0, 0.0),
        angular_velocity: Iterable[float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Place a free body, outside of physics.

        Position [m] of its centre of mass, quaternion (x, y, z, w) and velocities [m/s, rad/s] are
        those in the world frame.
        """
        self.bind(pybullet.resetBasePositionAndOrientation)(
            body, [float(x) for x in position], [float(x) for x in orientation]
        )
        self.bind(pybullet.resetBaseVelocity)(
            body, [float(x) for x in velocity], [float(x) for x in angular_velocity]
        )

    def _load(self, kind: str, load: Callable[..., Any], path: str, *args: Any, **more: Any) -> Any:
        LOADED_MODELS.add(path)
        try:
            return self.bind(load)(path, *args, **more)
        except pybullet.error as error:
            raise FileNotFoundError(
                f"PyBullet cannot load {kind}={path!r}. Give a path that exists, absolute or "
                f"relative to {pybullet_data.getDataPath()}."
            ) from error

    def _joint_infos(self, body: int) -> list[Sequence[Any]]:
        count = self.bind(pybullet.getNumJoints)(body)
        return [self.bind(pybullet.getJointInfo)(body, joint) for joint in range(count)]
