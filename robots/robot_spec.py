"""What makes a robot before there is a simulation, and where it starts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from robots.camera import Quaternion, Vector3
from robots.drives import ActionMode
from robots.sensors import SensorSpec

PerJoint = float | tuple[float, ...]
"""One value for all actuated joints, or one for each."""


class InitialState(NamedTuple):
    """Where one world starts an episode; None leaves what the world was built with."""

    joint_position: Sequence[float] | NDArray[np.float64]
    """Of the joints that are read [rad or m], shape (n_joints,)."""
    joint_velocity: Sequence[float] | NDArray[np.float64]
    """[rad/s or m/s], shape (n_joints,)."""
    base_position: Sequence[float] | NDArray[np.float64] | None = None
    """World position of the base's centre of mass [m]; for a free base."""
    base_orientation: Sequence[float] | NDArray[np.float64] = (0.0, 0.0, 0.0, 1.0)
    """Quaternion (x, y, z, w); for a free base, if it has a position."""
    base_velocity: Sequence[float] | NDArray[np.float64] = (0.0, 0.0, 0.0)
    """World frame [m/s]."""
    base_angular_velocity: Sequence[float] | NDArray[np.float64] = (0.0, 0.0, 0.0)
    """World frame [rad/s]."""
    object_position: NDArray[np.float64] | None = None
    """World positions of the objects' centres of mass [m], shape (n_objects, 3)."""
    object_orientation: NDArray[np.float64] | None = None
    """Quaternions (x, y, z, w), shape (n_objects, 4); upright if None."""
    memory: dict[str, NDArray[np.float64]] = {}  # noqa: RUF012
    """What the task keeps of the episode, such as a goal: arrays of shape () or (n,)."""
    partners: tuple["InitialState", ...] = ()
    """Where the world's further robots start; at rest where there is none for one."""


@dataclass(frozen=True)
class RobotSpec:
    """Everything that makes a robot, before there is a simulation."""

    urdf: str
    """File of the URDF, also searched for in ``pybullet_data``. Ending in .xml, it is read as
    MJCF, which says itself where its base is and whether it is free."""
    action_scale: PerJoint
    """What the action 1 stands for: [N m or N], [rad/s or m/s], [rad or m] by mode."""
    action_mode: ActionMode = ActionMode.TORQUE
    """What an action commands."""
    joints: str = ".*"
    """Pattern of the names of the joints that are read and reset; the others stay passive."""
    actuated: str = ".*"
    """Pattern of the names, among those joints, that actions drive."""
    positioned: str | None = None
    """Pattern of the names, among the actuated joints, that velocity mode drives to positions
    instead, such as steering hinges."""
    mixing: tuple[tuple[float, ...], ...] | None = None
    """Share of every entry of the action in what each actuated joint is told, one row a joint;
    clipped to [-1, 1] before ``action_scale``. None: one entry a joint."""
    held: str | None = None
    """Pattern of the names, among the read joints, that motors hold at their rest position."""
    rest_position: tuple[float, ...] | None = None
    """Rest position of the read joints [rad or m]; zeros if None."""
    max_force: PerJoint | None = None
    """Strength of the motors [N m or N], but in torque mode; the URDF's if None."""
    joint_limits: tuple[tuple[float, float], ...] | None = None
    """Lower and upper limit of each actuated joint [rad or m]; the URDF's if None."""
    position_gain: PerJoint | None = None
    """In position modes, share of the error mended in a physics step, in (0, 1]; Bullet's if
    None. In pd mode [N m/rad or N/m]."""
    velocity_gain: PerJoint | None = None
    """In position modes, share of the velocity error mended in a physics step; Bullet's if None.
    In pd mode [N m s/rad or N s/m]."""
    base_position: Vector3 = (0.0, 0.0, 0.0)
    """World position of the base [m]."""
    base_orientation: Quaternion = (0.0, 0.0, 0.0, 1.0)
    """World orientation of the base, quaternion (x, y, z, w)."""
    fixed_base: bool = True
    """Whether the base is bolted to the world."""
    self_collision: bool = False
    """Whether links that are not neighbours collide with each other."""
    ancestor_collision: bool = True
    """With ``self_collision``, whether that holds for links that hang from each other."""
    keep_damping: bool = False
    """Leave the damping as the file and Bullet have it; otherwise there is none."""
    inertia_from_file: bool = False
    """Take moments of inertia from the URDF; otherwise Bullet computes them from the shapes."""
    massless_links: str | None = None
    """Pattern of the names of links for which the URDF states no inertia: they get 1 g, where
    Bullet assumes 1 kg."""
    sensors: SensorSpec = field(default_factory=SensorSpec)
    """What is read besides the joints."""
    end_effector: str | None = None
    """Name of the link that end_effector mode moves."""
    ik_orientation: Quaternion | None = None
    """World orientation that the end effector keeps in that mode; None: any."""
    ik_turns: bool = False
    """In that mode, actions have three more entries, turns about the axes of the world."""
    ik_workspace: tuple[Vector3, Vector3] | None = None
    """In that mode, lowest and highest world position that is aimed at [m]."""
