"""The bodies of a MuJoCo world: which elements of its model are their links."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.simulation import JointInfo

# Where nobody listens, MuJoCo writes MUJOCO_LOG.TXT into the working folder. What it warns of, such
# as numbers that are none, shows in what is read.
if mujoco.get_mju_user_warning() is None:
    mujoco.set_mju_user_warning(logging.getLogger(__name__).debug)
SEEN, TOUCHED, BOTH = 2, 3, 4
"""Groups of geoms: what pictures show, what collides, and what does both."""
LEAST_KG, LEAST_INERTIA = 1e-6, 1e-9
"""What a link that moves has at least, since MuJoCo divides by it."""
# A motor is a constraint; this is how nearly it is kept, of 1. Nearer to 1, the solver takes twice
# as long.
MOTOR_IMPEDANCE = (0.95, 0.95, 0.001, 0.5, 2.0)


@dataclass
class LinkRecord:
    """A link of a body, and the elements of the model that make it."""

    name: str
    parent: int
    element: str
    """Name of its body in the model; links that share one are where it is."""
    has_mass: bool = True
    """Whether it is the one, of the links that share an element, that its mass is of."""
    joint: JointInfo | None = None
    joint_element: str = ""
    hangs: tuple[str, str] = ("", "fixed")
    """Name and kind of the joint above it, where that is none that can be driven."""
    friction: float = 0.5
    touched: list[str] = field(default_factory=list)
    """Names of its geoms that collide."""
    seen: list[str] = field(default_factory=list)
    """Names of those that are shown."""


@dataclass
class BodyRecord:
    """A body; its links are the base and then those of index 0, 1, ..."""

    number: int
    links: list[LinkRecord]
    moves: str = "fixed"
    """fixed, free, or placed: moved by hand alone."""
    self_collision: bool = False
    ancestor_collision: bool = True

    def link(self, index: int) -> LinkRecord:
        """Return the link of an index; -1 is the base."""
        return self.links[index + 1]

    @property
    def base(self) -> LinkRecord:
        """The base."""
        return self.links[0]


@dataclass(frozen=True)
class Pair:
    """Two links that collide, and the pairs of the model that make them."""

    first: tuple[int, int]
    second: tuple[int, int]
    element: str


def touch_each_other(body: BodyRecord, first: int, second: int) -> bool:
    """Return whether two links of a body collide; the first comes before the second."""
    if not body.self_collision:
        return False
    line = [second]
    while line[-1] != -1:
        line.append(body.link(line[-1]).parent)
    if first in line:
        # Links that hang rigidly together are one, and neighbours touch at their joint.
        joints = [body.link(index).joint for index in line[: line.index(first)]]
        return body.ancestor_collision and sum(joint is not None for joint in joints) > 1
    return True


def can_move(body: BodyRecord, link: int) -> bool:
    """Return whether physics can move a link."""
    if body.moves == "free":
        return True
    while link != -1:
        if body.link(link).joint is not None:
            return True
        link = body.link(link).parent
    return False


def set_moments(
    body: mujoco.MjsBody,
    mass_kg: float,
    moments: NDArray[np.float64],
    centre: Sequence[float] = (0.0, 0.0, 0.0),
    turn: Sequence[float] = (1.0, 0.0, 0.0, 0.0),
) -> None:
    """Set mass, centre of mass, and the moments about axes that are turned."""
    body.explicitinertial = True
    body.mass, body.ipos, body.iquat = float(mass_kg), np.array(centre), np.array(turn)
    least = LEAST_INERTIA if mass_kg > 0 else 0.0
    body.inertia = np.maximum(moments, least)


def set_damping(joint: mujoco.MjsJoint, damping: float) -> None:
    """Set the damping of a joint; since MuJoCo 3.6 it has coefficients of higher orders, too."""
    of_orders = np.zeros_like(joint.damping)
    of_orders.flat[0] = damping
    joint.damping = of_orders if of_orders.ndim else damping
