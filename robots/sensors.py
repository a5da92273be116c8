"""Sensors: what is read of one world or many after each step, and the state made of it."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import pybullet
from numpy.typing import NDArray

from robots.camera import Camera
from robots.frames import Components, Floats, columns
from robots.simulation import JointInfo, Simulation

Memory = Mapping[str, Any]
"""What a task keeps of an episode: arrays of shape (...) or (..., n), by name."""

NOTHING: Memory = {}


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


__all__ = ["Floats", "Memory", "SensorSpec", "Sensors", "State"]


@dataclass(frozen=True)
class SensorSpec:
    """What a robot reads besides the positions and velocities of its joints.

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
    camera: Camera | None = None
    """Camera whose image is read."""


class Sensors:
    """Reads a world as one flat row of numbers, and makes a ``State`` of one row or of many.

    Attributes:
        links: Names of the links that are read.
        contact_links: Names of the links whose contacts are read.
    """

    def __init__(
        self,
        simulation: Simulation,
        body: int,
        joints: list[JointInfo],
        objects: list[int],
        spec: SensorSpec,
    ) -> None:
        """Find what is to be read.

        Args:
            simulation: World of the robot.
            body: The robot.
            joints: The joints to read.
            objects: Bodies that are read as objects.
            spec: What to read besides.

        Raises:
            ValueError: If a pattern matches no link.
        """
        self._body = body
        self._objects = objects
        self._efforts = spec.efforts
        self._read_joints = simulation.joint_reader(body, [joint.index for joint in joints])
        links = simulation.links(body)
        self.links = _matching("sensors.links", spec.links, links)
        self.contact_links = _matching("sensors.contacts", spec.contacts, links)
        self._contact_columns = {links[name]: i for i, name in enumerate(self.contact_links)}
        self._read_pose = simulation.bind(pybullet.getBasePositionAndOrientation)
        self._read_velocity = simulation.bind(pybullet.getBaseVelocity)
        self._read_links = simulation.bind(pybullet.getLinkStates)
        self._forward = 0 if spec.links_as_left else 1
        entries = (0, 1, 6, 7) if spec.links_as_left else (4, 5, 6, 7)
        self._link_columns = [itemgetter(entry) for entry in entries]
        self._read_contacts = simulation.bind(pybullet.getContactPoints)
        indices = [links[name] for name in self.links]
        self._base_is_link = indices[:1] == [-1]
        self._link_indices = indices[1:] if self._base_is_link else indices
        self._has_base = spec.base
        self._parts: list[Callable[[], list[float]]] = []
        self._fields: list[tuple[str, int, int, tuple[int, ...]]] = []
        self._lay_out(len(joints))
        self._joints_alone = not self._parts and not spec.efforts
        self._first = slice(len(joints))
        self._second = slice(len(joints), None)

    def read(self) -> list[float]:
        """Return one row of numbers of this world."""
        joints = self._read_joints()
        row, velocities = [], []
        for position, velocity, _, _ in joints:
            row.append(position)
            velocities.append(velocity)
        row += velocities
        if self._joints_alone:
            return row
        if self._efforts:
            row += [joint[3] for joint in joints]
        for part in self._parts:
            row += part()
        return row

    def read_at_start(self) -> list[float]:
        """Return the same after a reset, where Bullet still has the last contacts and efforts."""
        row = self.read()
        for name, start, stop, _ in self._fields:
            if name in ("contact", "joint_effort"):
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
        return State(**fields, memory=memory, image=image)

    @property
    def n_numbers(self) -> int:
        """Return the length of a row."""
        return self._fields[-1][2]

    def _lay_out(self, n_joints: int) -> None:
        self._add("joint_position", n_joints)
        self._add("joint_velocity", n_joints)
        if self._efforts:
            self._add("joint_effort", n_joints)
        if self._has_base:
            self._parts.append(self._base)
            for name, size in _pose_fields("base"):
                self._add(name, size)
        if self.links:
            self._parts.append(self._link_rows)
            for name, size in _pose_fields("link"):
                self._add(name, len(self.links) * size, (len(self.links), size))
        if self.contact_links:
            self._parts.append(self._contacts)
            self._add("contact", len(self.contact_links))
        if self._objects:
            self._parts.append(self._object_rows)
            for name, size in _pose_fields("object"):
                self._add(name, len(self._objects) * size, (len(self._objects), size))

    def _add(self, name: str, size: int, shape: tuple[int, ...] = ()) -> None:
        start = self._fields[-1][2] if self._fields else 0
        self._fields.append((name, start, start + size, shape))

    def _body_poses(self, bodies: list[int]) -> list[list[float]]:
        """Return positions, orientations, velocities and angular velocities, each in a row."""
        columns: list[list[float]] = [[], [], [], []]
        for body in bodies:
            for column, values in zip(
                columns, (*self._read_pose(body), *self._read_velocity(body)), strict=True
            ):
                column.extend(values)
        return columns

    def _base(self) -> list[float]:
        return list(chain(*self._read_pose(self._body), *self._read_velocity(self._body)))

    def _object_rows(self) -> list[float]:
        return list(chain(*self._body_poses(self._objects)))

    def _link_rows(self) -> list[float]:
        # Without forward kinematics the poses would be those before the last step.
        states = (
            self._read_links(
                self._body,
                self._link_indices,
                computeLinkVelocity=1,
                computeForwardKinematics=self._forward,
            )
            if self._link_indices
            else ()
        )
        columns: list[list[float]] = [[], [], [], []]
        if self._base_is_link:
            columns = self._body_poses([self._body])
        row: list[float] = []
        for column, entry in zip(columns, self._link_columns, strict=True):
            row += column
            row.extend(chain.from_iterable(map(entry, states)))
        return row

    def _contacts(self) -> list[float]:
        touched = [0.0] * len(self.contact_links)
        columns = self._contact_columns
        for point in self._read_contacts(self._body):
            # Of a contact, the first body need not be the one that was asked for.
            links = [point[3]] if point[1] == self._body else []
            if point[2] == self._body:
                links.append(point[4])
            if point[1] != point[2]:
                for link in links:
                    if link in columns:
                        touched[columns[link]] = 1.0
        return touched


def _pose_fields(of: str) -> tuple[tuple[str, int], ...]:
    return (
        (f"{of}_position", 3),
        (f"{of}_orientation", 4),
        (f"{of}_velocity", 3),
        (f"{of}_angular_velocity", 3),
    )


def _matching(field: str, pattern: str | None, links: Mapping[str, int]) -> list[str]:
    """Return the names of the links that a pattern of ``SensorSpec`` matches."""
    if pattern is None:
        return []
    chosen = [name for name in links if re.fullmatch(pattern, name)]
    if not chosen:
        raise ValueError(f"{field}={pattern!r} matches no link. Choose among: {', '.join(links)}.")
    return chosen
