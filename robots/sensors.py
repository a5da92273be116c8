"""Sensors: what is read of one world or many after each step, and the state made of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.camera import Camera
from robots.frames import Components, Floats, columns, rotate_back
from robots.ranges import RangeReader, RangeSensor
from robots.simulation import JointInfo, Simulation, matching

__all__ = ["Floats", "Memory", "SensorSpec", "Sensors", "State"]

Memory = Mapping[str, Any]
"""What a task keeps of an episode: arrays of shape (...) or (..., n), by name."""

NOTHING: Memory = {}

JOINT_UNITS = {
    "joint_position": ("rad", "m"),
    "joint_velocity": ("rad/s", "m/s"),
    "joint_effort": ("N m", "N"),
    "joint_torque": ("N m", "N"),
}
"""Units of a hinge and of a slider, by what is sensed of it or commanded."""


class State(NamedTuple):
    """What the sensors of one world read, or of many: ``...`` is empty or (n_worlds,).

    A sensor that the robot does not have is None.
    """

    joint_position: Floats
    """[rad or m], shape (..., n_joints)."""
    joint_velocity: Floats
    """[rad/s or m/s], shape (..., n_joints)."""
    joint_effort: Floats = None  # type: ignore[assignment]
    """Torque or force that the motors applied in the last physics step [N m or N], shape
    (..., n_joints); 0 in torque mode, and at the start of an episode."""
    base_position: Floats = None  # type: ignore[assignment]
    """Centre of mass of the base, world frame [m], shape (..., 3)."""
    base_orientation: Floats = None  # type: ignore[assignment]
    """Quaternion (x, y, z, w), shape (..., 4)."""
    base_velocity: Floats = None  # type: ignore[assignment]
    """World frame [m/s], shape (..., 3)."""
    base_angular_velocity: Floats = None  # type: ignore[assignment]
    """World frame [rad/s], shape (..., 3)."""
    link_position: Floats = None  # type: ignore[assignment]
    """Origins of the links, world frame [m], shape (..., n_links, 3)."""
    link_orientation: Floats = None  # type: ignore[assignment]
    """Quaternions (x, y, z, w), shape (..., n_links, 4)."""
    link_velocity: Floats = None  # type: ignore[assignment]
    """Of the centres of mass, world frame [m/s], shape (..., n_links, 3)."""
    link_angular_velocity: Floats = None  # type: ignore[assignment]
    """World frame [rad/s], shape (..., n_links, 3)."""
    contact: Floats = None  # type: ignore[assignment]
    """1 where another body touches the link, else 0, shape (..., n_contact_links); 0 at the start
    of an episode."""
    ranges: Floats = None  # type: ignore[assignment]
    """Distance of the next body along each ray [m], shape (..., n_rays)."""
    object_position: Floats = None  # type: ignore[assignment]
    """Centres of mass of the objects, world frame [m], shape (..., n_objects, 3)."""
    object_orientation: Floats = None  # type: ignore[assignment]
    """Quaternions (x, y, z, w), shape (..., n_objects, 4)."""
    object_velocity: Floats = None  # type: ignore[assignment]
    """World frame [m/s], shape (..., n_objects, 3)."""
    object_angular_velocity: Floats = None  # type: ignore[assignment]
    """World frame [rad/s], shape (..., n_objects, 3)."""
    image: NDArray[np.uint8] = None  # type: ignore[assignment]
    """RGB, shape (..., height, width, 3)."""
    memory: Memory = NOTHING
    """What the task keeps of the episode."""
    partners: tuple["State", ...] = ()
    """What the sensors of the world's further robots read."""

    @property
    def joints(self) -> tuple[Components, Components]:
        """Positions and velocities of the joints, taken apart as ``columns`` does."""
        return columns(self.joint_position), columns(self.joint_velocity)

    @property
    def base_motion(self) -> tuple[Components, Components]:
        """Velocity [m/s] and angular velocity [rad/s] of the base, in its own frame."""
        orientation = columns(self.base_orientation)
        return (
            rotate_back(orientation, columns(self.base_velocity)),
            rotate_back(orientation, columns(self.base_angular_velocity)),
        )


class StateOfMany(State):
    """The same of many worlds, which computes each of these once."""

    @property
    def joints(self) -> tuple[Components, Components]:
        """Positions and velocities of the joints."""
        known: dict[str, Any] = self.__dict__
        if "joints" not in known:
            known["joints"] = super().joints
        joints: tuple[Components, Components] = known["joints"]
        return joints

    @property
    def base_motion(self) -> tuple[Components, Components]:
        """Velocity [m/s] and angular velocity [rad/s] of the base, in its own frame."""
        known: dict[str, Any] = self.__dict__
        if "base_motion" not in known:
            known["base_motion"] = super().base_motion
        motion: tuple[Components, Components] = known["base_motion"]
        return motion


# What a robot that reads its joints alone has between them and its image.
_UNREAD = (None,) * (len(State._fields) - 5)


class JointState(State):
    """The same of one world whose robot reads its joints alone.

    It holds plain numbers and makes arrays when they are asked for, since on so few numbers
    ``joints`` then costs nothing.
    """

    __slots__ = ()

    @property
    def joint_position(self) -> Floats:
        """[rad or m], shape (n_joints,)."""
        return np.array(self[0], np.float64)

    @property
    def joint_velocity(self) -> Floats:
        """[rad/s or m/s], shape (n_joints,)."""
        return np.array(self[1], np.float64)

    @property
    def joints(self) -> tuple[Components, Components]:
        """Positions and velocities of the joints."""
        return self[0], self[1]  # type: ignore[return-value]


def joint_state(
    position: list[float], velocity: list[float], memory: Memory, image: Any
) -> JointState:
    """Return a ``JointState``, in half the time of its constructor, which matches names."""
    return tuple.__new__(JointState, (position, velocity, *_UNREAD, image, memory, ()))


@dataclass(frozen=True)
class SensorSpec:
    """What a robot's sensors read in addition to the joints' positions and velocities.

    Patterns must match a whole name. The order of what they match is that of the URDF, the base
    first.
    """

    efforts: bool = False
    """The torques or forces that the joint motors applied."""
    base: bool = False
    """Pose and velocity of the base."""
    links: str | None = None
    """Pattern of the links whose pose and velocity are read."""
    links_as_left: bool = False
    """Read those of the links' centres of mass as the last physics step left them: the poses are
    those it began with. Saves the forward kinematics."""
    contacts: str | None = None
    """Pattern of the links for which it is read whether another body touches them."""
    ranges: RangeSensor | None = None
    """Rays that measure distances."""
    camera: Camera | None = None
    """Camera whose image is read."""


Columns = Callable[[], list[list[float]]]
"""Reads positions, orientations, velocities and angular velocities, each in a row."""


class Sensors:
    """Reads a world as one flat row of numbers, and makes a ``State`` of one row or of many.

    Attributes:
        links: Names of the links that are read.
        contact_links: Names of the links whose contacts are read.
        body: The robot.
        spec: What is read in addition to its joints.
        joint_indices: Indices of the joints that are read.
        link_indices: Indices of the links that are read, the base excluded.
        base_is_link: Whether the base is one of the links that are read.
        contact_indices: Indices of the links whose contacts are read.
        objects: Bodies that are read as objects.
        partners: Sensors of further robots, and the columns of what they read.
        n_numbers: Length of a row.
    """

    def __init__(
        self,
        simulation: Simulation,
        body: int,
        joints: list[JointInfo],
        objects: list[int],
        spec: SensorSpec,
        partners: Sequence["Sensors"] = (),
    ) -> None:
        """Find what is to be read.

        Args:
            simulation: World of the robot.
            body: The robot.
            joints: The joints to read.
            objects: Bodies that are read as objects.
            spec: What to read in addition.
            partners: Sensors of the world's further robots, read into the same row.

        Raises:
            ValueError: If a pattern matches no link.
        """
        self.body, self.spec, self.objects = body, spec, objects
        self._joint_names = tuple(joint.name for joint in joints)
        self.joint_indices = [joint.index for joint in joints]
        self._read_joints = simulation.joint_reader(body, self.joint_indices, spec.efforts)
        links = simulation.links(body)
        names = [(name, name) for name in links]
        self.links, self.contact_links = (
            [] if pattern is None else matching(f"sensors.{field}", pattern, names, "link")
            for field, pattern in (("links", spec.links), ("contacts", spec.contacts))
        )
        self.contact_indices = [links[name] for name in self.contact_links]
        indices = [links[name] for name in self.links]
        self.base_is_link = indices[:1] == [-1]
        self.link_indices = indices[1:] if self.base_is_link else indices

        n_joints = len(joints)
        self._parts: list[Callable[[], list[float]]] = []
        shapes: dict[str, tuple[int, ...]] = {
            "joint_position": (n_joints,),
            "joint_velocity": (n_joints,),
        }
        if spec.efforts:
            shapes["joint_effort"] = (n_joints,)
        if spec.base:
            self._parts.append(_flat(_bodies(simulation, [body])))
            shapes |= _pose_shapes("base")
        if self.links:
            self._parts.append(_flat(self._link_columns(simulation)))
            shapes |= _pose_shapes("link", len(self.links))
        if self.contact_links:
            self._parts.append(simulation.contact_reader(body, self.contact_indices))
            shapes["contact"] = (len(self.contact_links),)
        if spec.ranges is not None:
            read_pose, cast = simulation.pose_reader(body), simulation.ray_caster()
            self._parts.append(RangeReader(spec.ranges, read_pose, cast).read)
            shapes["ranges"] = (spec.ranges.n_rays,)
        if objects:
            self._parts.append(_flat(_bodies(simulation, objects)))
            shapes |= _pose_shapes("object", len(objects))
        self.n_numbers = 0
        self._fields: list[tuple[str, int, int, tuple[int, ...]]] = []
        for name, shape in shapes.items():
            start, self.n_numbers = self.n_numbers, self.n_numbers + prod(shape)
            self._fields.append((name, start, self.n_numbers, shape[:-1] and shape))
        # At a reset an engine still has the last contacts and efforts.
        self._stale = [f[1:3] for f in self._fields if f[0] in ("contact", "joint_effort")]
        self.partners: list[tuple[Sensors, slice]] = []
        for partner in partners:
            start, self.n_numbers = self.n_numbers, self.n_numbers + partner.n_numbers
            self._parts.append(partner.read)
            self.partners.append((partner, slice(start, self.n_numbers)))
            self._stale += [(start + first, start + last) for first, last in partner._stale]
        self._joints_alone = not self._parts and not spec.efforts
        self._first, self._second = slice(n_joints), slice(n_joints, None)

    def layout(self) -> dict[str, tuple[str, ...]]:
        """Return names of the numbers of a row by the field of ``State`` they are read into.

        Fields and names are in the order of the row; those of partners, which follow, are left out.
        """
        bodies = {"base": [""], "link": [f"{link}/" for link in self.links]}
        bodies["object"] = [f"{number}/" for number in range(len(self.objects))]
        named = {"contact": tuple(self.contact_links)}
        found: dict[str, tuple[str, ...]] = {}
        for field, start, stop, _ in self._fields:
            of, _, what = field.partition("_")
            if of == "joint":
                found[field] = self._joint_names
            elif of in bodies:
                axes = "xyzw" if what == "orientation" else "xyz"
                found[field] = tuple(f"{body}{axis}" for body in bodies[of] for axis in axes)
            else:
                found[field] = named.get(field) or tuple(map(str, range(stop - start)))
        return found

    def _link_columns(self, simulation: Simulation) -> Columns:
        base = _bodies(simulation, [self.body])
        if not self.link_indices:
            return base
        as_left = self.spec.links_as_left
        links = simulation.link_reader(self.body, self.link_indices, as_left)
        return _side_by_side(links, base) if self.base_is_link else links

    def read(self) -> list[float]:
        """Return one row of numbers of this world."""
        row = self._read_joints()
        for part in self._parts:
            row += part()
        return row

    def read_at_start(self) -> list[float]:
        """Return the same after a reset, when no contact or effort counts yet."""
        row = self.read()
        for start, stop in self._stale:
            row[start:stop] = [0.0] * (stop - start)
        return row

    def state(
        self, rows: Floats | list[float], memory: Memory = NOTHING, image: Any = None
    ) -> State:
        """Return the state that rows of numbers stand for.

        Args:
            rows: Shape (..., n_numbers); or one row of plain numbers, as ``read`` gives it.
            memory: What the task keeps, with the same leading dimensions.
            image: Shape (..., height, width, 3), if there is a camera.
        """
        if isinstance(rows, list):
            if self._joints_alone:
                return joint_state(rows[self._first], rows[self._second], memory, image)
            rows = np.array(rows)
        lead = rows.shape[:-1]
        fields: dict[str, Any] = {
            name: rows[..., start:stop].reshape(lead + shape) if shape else rows[..., start:stop]
            for name, start, stop, shape in self._fields
        }
        partners = tuple(one.state(rows[..., span]) for one, span in self.partners)
        return StateOfMany(**fields, memory=memory, image=image, partners=partners)


def _bodies(simulation: Simulation, bodies: Sequence[int]) -> Columns:
    readers = [(simulation.pose_reader(body), simulation.velocity_reader(body)) for body in bodies]

    def read() -> list[list[float]]:
        reads = ((*pose(), *velocity()) for pose, velocity in readers)
        return [list(chain(*column)) for column in zip(*reads, strict=True)]

    return read


def _side_by_side(links: Columns, base: Columns) -> Columns:
    """Return what reads a base and its links, in this order."""

    def read() -> list[list[float]]:
        of_links = links()
        return [one + others for one, others in zip(base(), of_links, strict=True)]

    return read


def _flat(read: Columns) -> Callable[[], list[float]]:
    return lambda: list(chain.from_iterable(read()))


def _pose_shapes(of: str, *count: int) -> dict[str, tuple[int, ...]]:
    sizes = {"position": 3, "orientation": 4, "velocity": 3, "angular_velocity": 3}
    return {f"{of}_{name}": (*count, size) for name, size in sizes.items()}
