"""What the sensors of a world read, as named arrays."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.components import Components, Floats, columns

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
