"""The contract of a physics engine: a world of bodies that is built, stepped, read and driven.

``robots.engines`` has its implementations. Tasks, drives, sensors, randomization and rendering
know nothing else of physics.
"""

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import cos, sin
from typing import Any, ClassVar, Literal, NamedTuple, NoReturn, Protocol, TypeVar

from numpy.typing import NDArray

from robots.camera import Camera, Colour, Quaternion, Vector3

UPRIGHT: Quaternion = (0.0, 0.0, 0.0, 1.0)
# What a position motor has if it is given no gains.
POSITION_GAIN, VELOCITY_GAIN = 0.1, 1.0

Pose = tuple[Sequence[float], Sequence[float]]
"""World position [m] and quaternion (x, y, z, w)."""
Shape = Literal["box", "sphere", "cylinder"]
_T = TypeVar("_T")

LOADED_MODELS: set[str] = set()
"""Paths of the models that this process has loaded, as they were given; engines add to it."""


class DisplayError(RuntimeError):
    """A window was requested on a machine that has no display."""


def require_display() -> None:
    """Raise a DisplayError on a Linux without a display; other systems always have one."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise DisplayError(
            "render_mode='human' needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. "
            "Use render_mode='rgb_array', or start under a display, for example with xvfb-run."
        )


class RendererError(RuntimeError):
    """A renderer was requested that this machine or engine does not have."""


@dataclass(frozen=True)
class Physics:
    """How time passes in a world, and how its physics is solved."""

    time_step_s: float = 1 / 200
    """Length of a physics step [s]."""
    substeps: int = 4
    """Physics steps per action."""
    gravity_m_s2: float = 9.81
    """Downward gravity."""
    solver_iterations: int = 50
    """Iterations of Bullet's constraint solver in a physics step; MuJoCo's ends when it has
    converged."""
    contact_erp: float | None = None
    """Share of a penetration that a step corrects, in (0, 1]; the engine's if None."""
    cone_friction: bool = True
    """Whether friction limits its two directions together, as in nature. Bullet solves that only
    roughly, and for wheels that skid the result depends on their heading."""
    single_precision_time: bool = True
    """Round the physics step to single precision. The rounded value times ``substeps`` is exact in
    double precision, so that Bullet, which divides it again, neither drops a substep nor carries a
    remainder over. False needs 1, 2, 4, 8, ... substeps."""


@dataclass(frozen=True)
class JointInfo:
    """What the file of a robot states about one movable joint."""

    index: int
    """Index of the joint, and of its child link, in its body."""
    name: str
    """Name in the file."""
    lower: float
    """Lower limit [m or rad]; above ``upper`` where the joint has no limits."""
    upper: float
    """Upper limit [m or rad]."""
    max_force: float
    """Effort limit [N or N m]."""
    max_velocity: float = 0.0
    """Velocity limit [m/s or rad/s]; 0 where the file gives none."""
    slides: bool = False
    """Whether it is prismatic; its unit is then m and N, otherwise rad and N m."""


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
    """Coefficient of lateral friction; a contact has the product of those of both links."""


class LinkPlace(NamedTuple):
    """Where a link is in the world now, and how it hangs on the one above it."""

    name: str
    parent: int
    """Index of the link above it, -1 the base; that of the base is -2."""
    joint: str
    """Name of the joint above it; of what no joint holds, the empty string."""
    kind: str
    """fixed, revolute, prismatic, planar or spherical."""
    origin: Vector3
    """Where that joint is [m]."""
    axis: Vector3
    """Along which it slides, or about which it turns; its length is 1, where an engine has more."""
    orientation: Quaternion
    """Of the frame of the link, (x, y, z, w)."""
    centre: Vector3
    """Its centre of mass [m]."""
    box: tuple[Vector3, Vector3] | None
    """Lowest and highest corner of what collides of it [m]."""


@dataclass(frozen=True)
class RobotFile:
    """How the file of a robot is loaded; the fields are those of ``RobotSpec``."""

    path: str
    """URDF, or MJCF if it ends in .xml, also searched for in ``pybullet_data``."""
    position: Vector3 = (0.0, 0.0, 0.0)
    """World position of the base [m]; an MJCF says itself where its base is."""
    orientation: Quaternion = UPRIGHT
    """World orientation of the base, quaternion (x, y, z, w)."""
    fixed_base: bool = True
    """Whether the base is bolted to the world; an MJCF says so itself."""
    self_collision: bool = False
    """Whether links that are not neighbours collide with each other."""
    ancestor_collision: bool = True
    """With ``self_collision``, whether that holds for links that hang from each other."""
    inertia_from_file: bool = False
    """Take moments of inertia from the file; otherwise compute them from the shapes."""
    keep_damping: bool = False
    """Leave the damping as file and engine have it; otherwise there is none."""
    keep_joints: bool = False
    """Leave springs, damping and armature of joints as an MJCF has them, which MuJoCo alone reads;
    otherwise there are none."""
    ballast_m: float | None = None
    """Add the links of ``robots.ballast`` at this distance."""


class InverseKinematics(Protocol):
    """Finds joint positions that bring a link somewhere."""

    def pose(self) -> Pose:
        """Return where the link's frame is now."""

    def solve(self, position: Sequence[float], orientation: Quaternion | None) -> list[float]:
        """Return positions of the joints [rad or m], near the present ones.

        Args:
            position: World position of the link's frame [m].
            orientation: World orientation, quaternion (x, y, z, w); None: any.
        """

    def turned(self, orientation: Quaternion, angles: Sequence[float]) -> Quaternion:
        """Return an orientation turned about x, then y, then z of the world [rad]."""
        (sx, sy, sz), (cx, cy, cz) = ([f(0.5 * angle) for angle in angles] for f in (sin, cos))
        a, b, c, d = (
            sx * cy * cz - cx * sy * sz,
            cx * sy * cz + sx * cy * sz,
            cx * cy * sz - sx * sy * cz,
            cx * cy * cz + sx * sy * sz,
        )
        x, y, z, w = orientation
        return (
            d * x + a * w + b * z - c * y,
            d * y + b * w + c * x - a * z,
            d * z + c * w + a * y - b * x,
            d * w - a * x - b * y - c * z,
        )


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


class Simulation(ABC):
    """A world of bodies in one physics engine.

    Bodies and links have numbers: a body that of the call that added it, a link its index in its
    body, -1 the base. What a step needs is bound once: methods that are named after what they
    return, such as ``joint_reader``, return a function for it.

    Not thread-safe, and must not be copied.

    Attributes:
        engine: Name of the engine.
        has_armature: Whether joints can be given an armature.
        step_s: Simulated time of one ``step`` [s].
        substeps: Physics steps in one ``step``.
        gravity_m_s2: Nominal downward gravity.
        gui: Whether the world is shown in a window.
        draws: Whether images are drawn of it. If not, what bodies look like is not loaded.
        step: Function that advances the world by ``step_s``; torques act over all of it.
        substep: The same by one physics step; for a world made without ``hold_torques``.
    """

    engine: ClassVar[str]
    has_armature: ClassVar[bool] = False
    step_s: float
    substeps: int
    gravity_m_s2: float
    gui: bool
    draws: bool
    step: Callable[[], None]
    substep: Callable[[], None]

    # Building -----------------------------------------------------------------------------------

    @abstractmethod
    def load_robot(self, file: RobotFile) -> int:
        """Load a robot, with its joints passive; return its body.

        Raises:
            FileNotFoundError: If the file cannot be loaded.
            ValueError: If an MJCF holds more than one body.
        """

    @abstractmethod
    def load_ground(self, path: str) -> int:
        """Load a ground that does not move, a URDF or SDF; return its body.

        Raises:
            FileNotFoundError: If the file cannot be loaded.
        """

    @abstractmethod
    def add_object(
        self,
        shape: Shape,
        size: Vector3,
        *,
        mass_kg: float,
        position: Vector3,
        orientation: Quaternion,
        friction: float,
        colour: Colour,
    ) -> int:
        """Add a body of one shape, without damping; return it. Without a mass it cannot move.

        The size is that of ``ObjectSpec``, position and orientation those in the world.
        """

    @abstractmethod
    def add_heights(self, heights: NDArray[Any], cell_m: float, colour: Colour) -> int:
        """Add an uneven ground around the origin; return its body.

        Args:
            heights: Heights of its points [m], rows along y, shape (n, n). The body's origin is
                midway between the lowest and the highest.
            cell_m: Distance between neighbouring points.
            colour: Its colour.
        """

    @abstractmethod
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
            body: The body of both.
            link: The joint that follows.
            other: The joint that leads.
            ratio: Motion of the one for a motion of 1 of the other.
            offset: Position of the one where the other is at 0 [rad or m].
            max_force: Strength of the gear [N m or N], where the engine limits it.
        """

    # What a body is -----------------------------------------------------------------------------

    @abstractmethod
    def movable_joints(self, body: int) -> list[JointInfo]:
        """Return the revolute and prismatic joints of a body in the order of its file."""

    @abstractmethod
    def links(self, body: int) -> dict[str, int]:
        """Return the index of every link of a body by name, but those of its ballast."""

    @abstractmethod
    def ballast(self, body: int) -> list[int]:
        """Return the links that ``ballast_m`` added along +x, -x, +y, -y, +z and -z, if any."""

    @abstractmethod
    def trunk(self, body: int) -> int:
        """Return the heaviest link that is, by fixed joints alone, one with the base."""

    @abstractmethod
    def link_dynamics(self, body: int) -> dict[int, LinkDynamics]:
        """Return mass, inertia and friction of every link of a body but its ballast."""

    @abstractmethod
    def link_places(self, body: int) -> list[LinkPlace]:
        """Return where the links of a body are: the base, then those of index 0, 1, ..."""

    @abstractmethod
    def set_mass(self, body: int, link: int, mass_kg: float, inertia: Sequence[float]) -> None:
        """Set the mass of a link, and its moments about its principal axes [kg m^2]."""

    @abstractmethod
    def set_friction(
        self, body: int, link: int, friction: float, restitution: float | None = None
    ) -> None:
        """Set the coefficient of friction of a link, and of restitution where it is given."""

    @abstractmethod
    def set_joint_damping(self, body: int, joint: int, damping: float) -> None:
        """Set the damping of a joint [N m s/rad or N s/m]."""

    def set_armature(self, body: int, joint: int, armature: float) -> None:
        """Set the inertia that a joint's motor adds to its motion [kg m^2 or kg]."""
        raise NotImplementedError(f"{type(self).__name__} has no armature.")

    @abstractmethod
    def set_gravity(self, gravity_m_s2: float) -> None:
        """Set the downward gravity."""

    def made_up_links(self, body: int) -> list[str]:
        """Return the links without a shape whose mass the engine made up."""
        del body
        return []

    def further_joints(self, body: int) -> list[tuple[JointInfo, str]]:
        """Return the joints of more than one axis, which no action drives, and their kinds."""
        places = enumerate(self.link_places(body), start=-1)
        return [
            (JointInfo(index, place.joint, lower=0.0, upper=-1.0, max_force=0.0), place.kind)
            for index, place in places
            if place.kind in ("planar", "spherical")
        ]

    def clearance_m(self, body: int, ground: int) -> float | None:
        """Return the distance from the ground to the lowest point of a body [m], if it has one."""
        del ground
        return self.lowest_m(body)

    # Reading ------------------------------------------------------------------------------------

    @abstractmethod
    def joint_reader(
        self, body: int, joints: Sequence[int], efforts: bool = False
    ) -> Callable[[], list[float]]:
        """Return a function that reads n joints.

        It returns their n positions [rad or m], n velocities, and, if asked for, the n torques or
        forces that their velocity or position motors applied in the last physics step.
        """

    @abstractmethod
    def pose_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the pose of the base's centre of mass."""

    @abstractmethod
    def velocity_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the base's velocity [m/s] and angular velocity [rad/s].

        Both in the world frame, the first that of the centre of mass.
        """

    @abstractmethod
    def link_reader(
        self, body: int, links: Sequence[int], as_left: bool = False
    ) -> Callable[[], list[list[float]]]:
        """Return a function that reads n links, none of which is the base.

        It returns four flat lists: n world positions of their frames [m], n quaternions
        (x, y, z, w), n velocities of their centres of mass [m/s] and n angular velocities [rad/s].
        With ``as_left`` the poses may be those of the centres of mass before the last physics step,
        where that is cheaper.
        """

    @abstractmethod
    def contact_reader(self, body: int, links: Sequence[int]) -> Callable[[], list[float]]:
        """Return a function that reads which of n links touch another body: n numbers, 1 or 0."""

    @abstractmethod
    def ray_caster(self) -> Callable[[Sequence[Any], Sequence[Any]], list[float]]:
        """Return a function that follows n rays from points to points in the world [m].

        It returns, of each, the share of its way to the first body that it meets, 1 for none.
        """

    # Driving ------------------------------------------------------------------------------------

    @abstractmethod
    def torque_motors(self, body: int, joints: Sequence[int]) -> Callable[[list[float]], None]:
        """Return a function that applies n torques or forces over the next step or substep."""

    @abstractmethod
    def velocity_motors(
        self, body: int, joints: Sequence[int]
    ) -> Callable[[list[float], list[float]], None]:
        """Return a function that takes n velocities to reach, and n torques or forces at most.

        Both stay in force until they are set again.
        """

    @abstractmethod
    def position_motors(
        self,
        body: int,
        joints: Sequence[int],
        position_gains: Sequence[float] | None = None,
        velocity_gains: Sequence[float] | None = None,
        max_velocities: Sequence[float] | None = None,
    ) -> Callable[[list[float], list[float]], None]:
        """Return the same for positions [rad or m].

        Args:
            body: Id of the body.
            joints: Indices of n joints.
            position_gains: Share of the error that a physics step corrects, in (0, 1].
            velocity_gains: Share of the velocity that a physics step takes away.
            max_velocities: Highest velocities that they drive to [rad/s or m/s].
        """

    @abstractmethod
    def inverse_kinematics(self, body: int, link: int, joints: Sequence[int]) -> InverseKinematics:
        """Return the solver for a link, whose solutions are those of n joints."""

    # State --------------------------------------------------------------------------------------

    @abstractmethod
    def reset_joints(
        self, body: int, joints: Sequence[int], position: Iterable[float], velocity: Iterable[float]
    ) -> None:
        """Set positions [m or rad] and velocities [m/s or rad/s] of joints, outside of physics."""

    @abstractmethod
    def reset_base(
        self,
        body: int,
        position: Iterable[float],
        orientation: Iterable[float],
        velocity: Iterable[float] = (0.0, 0.0, 0.0),
        angular_velocity: Iterable[float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Place a free body, or one that does not move, outside of physics.

        Position [m] of its centre of mass, quaternion (x, y, z, w) and velocities [m/s, rad/s] are
        those in the world frame.
        """

    @abstractmethod
    def set_base_velocity(
        self, body: int, velocity: Sequence[float], angular_velocity: Sequence[float]
    ) -> None:
        """Set the velocity [m/s] and angular velocity [rad/s] of a free body, world frame."""

    @abstractmethod
    def add_joint_velocity(self, body: int, joint: int, change: float) -> None:
        """Add to the velocity of a joint [rad/s or m/s]."""

    @abstractmethod
    def save(self) -> None:
        """Keep the present state as the nominal one, in place of an earlier one."""

    @abstractmethod
    def restore(self) -> None:
        """Go back to the nominal state, whatever happened since; masses are not part of it."""

    @abstractmethod
    def forget_contacts(self) -> None:
        """Forget which bodies touched each other; to be called where they are far apart."""

    def exact_state(self) -> NDArray[Any] | None:
        """Return all that the next step depends on, shape (n,); None if only a replay gives it."""
        return None

    def load_exact_state(self, state: NDArray[Any]) -> None:
        """Continue from what ``exact_state`` returned for a world that was built alike.

        Raises:
            ValueError: If it has another length.
        """
        raise NotImplementedError(f"{type(self).__name__} gives no exact state.")

    @abstractmethod
    def close(self) -> None:
        """Free the world; calling it again does nothing."""

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled with a TypeError."""
        raise TypeError(
            "A Simulation cannot be copied or pickled: the copy would share the engine's world. "
            "Make a second environment instead."
        )

    # Pictures -----------------------------------------------------------------------------------

    @abstractmethod
    def add_marker(self, shape: Shape, size: Vector3, position: Vector3, colour: Colour) -> int:
        """Add a body that is seen but touches nothing; return it. The size is ``ObjectSpec``'s."""

    @abstractmethod
    def place_marker(self, body: int, position: Vector3) -> None:
        """Put a marker elsewhere [m], upright."""

    @abstractmethod
    def paint(self, body: int, link: int, colour: Colour) -> None:
        """Colour one link; what is wholly transparent is not drawn."""

    @abstractmethod
    def look_of_base(self, body: int) -> tuple[Vector3, Vector3]:
        """Return the edges of the box that a base looks like, and its middle in the world [m]."""

    def lowest_m(self, body: int) -> float:
        """Return how low a body reaches [m]; 0 if it has no shapes that collide."""
        boxes = (place.box for place in self.link_places(body))
        return min((box[0][2] for box in boxes if box is not None), default=0.0)

    @abstractmethod
    def picture(self, camera: Camera) -> NDArray[Any]:
        """Return what a camera sees as RGB, uint8, shape (height, width, 3)."""

    @abstractmethod
    def shaded_picture(self, camera: Camera, unshaded: Sequence[int] = ()) -> NDArray[Any]:
        """Return the same with shadows; bodies of many small parts may be left out of them."""

    @abstractmethod
    def colours_of(self, camera: Camera, body: int) -> NDArray[Any]:
        """Return the pixels of one body that a camera sees, shape (n, 3)."""

    @abstractmethod
    def aim_window(self, camera: Camera) -> None:
        """Point the window at the camera's target."""
