"""The bodies of a PyBullet world: how they are loaded, what they are made of, where they are."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from xml.etree import ElementTree

import pybullet
import pybullet_data
from numpy.typing import NDArray

from robots.ballast import BALLAST, with_ballast
from robots.camera import Colour, Quaternion, Vector3
from robots.engines.bullet.client import Client
from robots.engines.models import found_file
from robots.simulation import (
    LOADED_MODELS,
    UPRIGHT,
    JointInfo,
    LinkDynamics,
    LinkPlace,
    RobotFile,
    Shape,
)

_MOVABLE = (pybullet.JOINT_REVOLUTE, pybullet.JOINT_PRISMATIC)
_KINDS = {
    pybullet.JOINT_REVOLUTE: "revolute",
    pybullet.JOINT_PRISMATIC: "prismatic",
    pybullet.JOINT_PLANAR: "planar",
    pybullet.JOINT_SPHERICAL: "spherical",
}
# What Bullet gives to links without <inertial>: moments as of the file, or computed from no shape.
_MADE_UP_KG, _MADE_UP_INERTIAS = 1.0, ((1.0, 1.0, 1.0), (2e-6 / 3,) * 3)
_FAR_M = 10.0
# Elements of MJCFs that it passes over.
_UNREAD = ("frame", "freejoint", "include", "mesh", "replicate")


class Bodies(Client):
    """A PyBullet world to which bodies are added.

    What Bullet's own code and tests use beside the contract: ``load_urdf``, ``change_dynamics``,
    ``joint_driver`` and ``bind``.
    """

    _mjcfs: frozenset[int] = frozenset()

    def load_robot(self, file: RobotFile) -> int:
        """Load a robot, with its joints passive; return its body."""
        flags = 0
        if file.inertia_from_file:
            flags |= pybullet.URDF_USE_INERTIA_FROM_FILE
        if file.self_collision:
            flags |= pybullet.URDF_USE_SELF_COLLISION
            if not file.ancestor_collision:
                flags |= pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
        if not file.path.endswith(".xml"):
            return self.load_urdf(
                file.path,
                position=file.position,
                orientation=file.orientation,
                fixed_base=file.fixed_base,
                flags=flags,
                keep_damping=file.keep_damping,
                ballast_m=file.ballast_m,
            )
        _check_mjcf(file.path)
        bodies = list(self._load("mjcf", pybullet.loadMJCF, file.path, flags=flags))
        for body in bodies:
            self._make_passive(body, keep_damping=file.keep_damping)
        if len(bodies) != 1:
            raise ValueError(
                f"urdf={file.path!r} holds {len(bodies)} bodies, and a robot is one. Leave one in "
                "the file."
            )
        self._mjcfs = self._mjcfs | {*bodies}
        return int(bodies[0])

    def load_ground(self, path: str) -> int:
        """Load a ground that does not move, a URDF or SDF; return its body."""
        if path.endswith(".sdf"):
            return int(self._load("sdf", pybullet.loadSDF, path)[0])
        return self.load_urdf(path)

    def load_urdf(
        self,
        path: str,
        *,
        position: Vector3 = (0, 0, 0),
        orientation: Quaternion = UPRIGHT,
        fixed_base: bool = True,
        flags: int = 0,
        keep_damping: bool = False,
        ballast_m: float | None = None,
    ) -> int:
        """Load a body, with its default joint motors and all damping switched off.

        The arguments are those of ``RobotFile``, and PyBullet's ``URDF_*`` flags.

        Raises:
            FileNotFoundError: If PyBullet cannot load the file.
        """
        load, place = pybullet.loadURDF, (position, orientation)
        if not self.draws:
            flags |= pybullet.URDF_IGNORE_VISUAL_SHAPES
        if ballast_m is not None:
            load = partial(_load_with_ballast, ballast_m)
        body: int = self._load("urdf", load, path, *place, useFixedBase=fixed_base, flags=flags)
        self._make_passive(body, keep_damping=keep_damping)
        return body

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
        """Add a body of one shape, without damping; return it. Without a mass it cannot move."""
        kind, collision = _geometry(shape, size)
        body: int = self.bind(pybullet.createMultiBody)(
            baseMass=mass_kg,
            baseCollisionShapeIndex=self.bind(pybullet.createCollisionShape)(kind, **collision),
            baseVisualShapeIndex=self._look(shape, size, colour),
            basePosition=position,
            baseOrientation=orientation,
        )
        self.change_dynamics(body, -1, lateralFriction=friction, linearDamping=0, angularDamping=0)
        return body

    def add_marker(self, shape: Shape, size: Vector3, position: Vector3, colour: Colour) -> int:
        """Add a body that is seen but touches nothing; return it."""
        body: int = self.bind(pybullet.createMultiBody)(
            baseVisualShapeIndex=self._look(shape, size, colour), basePosition=position
        )
        return body

    def add_heights(self, heights: NDArray[Any], cell_m: float, colour: Colour) -> int:
        """Add an uneven ground around the origin; return its body."""
        shape = self.bind(pybullet.createCollisionShape)(
            pybullet.GEOM_HEIGHTFIELD,
            meshScale=(cell_m, cell_m, 1.0),
            heightfieldData=heights.ravel().tolist(),
            numHeightfieldRows=len(heights),
            numHeightfieldColumns=len(heights),
        )
        body: int = self.bind(pybullet.createMultiBody)(0, shape)
        self.paint(body, -1, colour)
        return body

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
        """Make the joint above a link follow that above another one, as a gear would."""
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

    def movable_joints(self, body: int) -> list[JointInfo]:
        """Return the revolute and prismatic joints of a body in the order of its file."""
        return [_joint(info) for info in self._joint_infos(body) if info[2] in _MOVABLE]

    def link_places(self, body: int) -> list[LinkPlace]:
        """Return where the links of a body are: the base, then those of index 0, 1, ..."""
        base, _ = self.bind(pybullet.getBodyInfo)(body)
        centre, turn = self.bind(pybullet.getBasePositionAndOrientation)(body)
        box = self._box(body, -1)
        places = [
            LinkPlace(base.decode(), -2, "", "fixed", centre, (0.0, 0.0, 0.0), turn, centre, box)
        ]
        for info in self._joint_infos(body):
            state = self.bind(pybullet.getLinkState)(body, info[0], computeForwardKinematics=1)
            axis = pybullet.rotateVector(state[1], info[13])  # PyBullet gives it as of the inertia.
            kind, box = _KINDS.get(info[2], "fixed"), self._box(body, info[0])
            name, joint = info[12].decode(), info[1].decode()
            hangs = info[16], joint, kind, state[4], axis
            places.append(LinkPlace(name, *hangs, state[5], state[0], box))
        return places

    def _box(self, body: int, link: int) -> tuple[Vector3, Vector3] | None:
        low, high = self.bind(pybullet.getAABB)(body, link)
        # To ask for the shapes of an MJCF can crash PyBullet; there it is a point without one.
        has_shape = low != high if body in self._mjcfs else self._shapes(body, link)
        return (low, high) if has_shape else None

    def _shapes(self, body: int, link: int) -> Sequence[Any]:
        shapes: Sequence[Any] = self.bind(pybullet.getCollisionShapeData)(body, link)
        return shapes

    def made_up_links(self, body: int) -> list[str]:
        """Return the links without a shape that Bullet gave a mass, for want of an <inertial>."""
        dynamics = self.link_dynamics(body)
        return [
            name
            for name, link in self.links(body).items()
            if dynamics[link].mass_kg == _MADE_UP_KG
            and dynamics[link].inertia in _MADE_UP_INERTIAS
            and not self._shapes(body, link)
        ]

    def clearance_m(self, body: int, ground: int) -> float | None:
        """Return the distance from the ground to the lowest point of a body [m], if it has one."""
        self.forget_contacts()
        points = self.bind(pybullet.getClosestPoints)(body, ground, _FAR_M)
        return min((float(point[8]) for point in points), default=None)

    def links(self, body: int) -> dict[str, int]:
        """Return the index of every link of a body by name, but those of its ballast."""
        base = self.bind(pybullet.getBodyInfo)(body)[0].decode()
        links = {base: -1, **{info[12].decode(): info[0] for info in self._joint_infos(body)}}
        return {name: link for name, link in links.items() if not name.startswith(BALLAST)}

    def ballast(self, body: int) -> list[int]:
        """Return the links that ``ballast_m`` added along +x, -x, +y, -y, +z and -z, if any."""
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
        """Return mass, inertia and friction of every link of a body but its ballast."""
        read = self.bind(pybullet.getDynamicsInfo)
        links = range(-1, self.bind(pybullet.getNumJoints)(body))
        added = self.ballast(body)
        infos = {link: read(body, link) for link in links if link not in added}
        return {link: LinkDynamics(i[0], tuple(i[2]), i[1]) for link, i in infos.items()}

    def change_dynamics(self, body: int, link: int, **values: Any) -> None:
        """Change what PyBullet's ``changeDynamics`` can of one link; -1 is the base."""
        self.bind(pybullet.changeDynamics)(body, link, **values)

    def set_mass(self, body: int, link: int, mass_kg: float, inertia: Sequence[float]) -> None:
        """Set the mass of a link, and its moments about its principal axes [kg m^2]."""
        # Given a mass alone, Bullet computes the moments from the shapes.
        self.change_dynamics(body, link, mass=mass_kg, localInertiaDiagonal=inertia)

    def set_friction(
        self, body: int, link: int, friction: float, restitution: float | None = None
    ) -> None:
        """Set the coefficient of friction of a link, and of restitution where it is given."""
        more = {} if restitution is None else {"restitution": restitution}
        self.change_dynamics(body, link, lateralFriction=friction, **more)

    def set_joint_damping(self, body: int, joint: int, damping: float) -> None:
        """Set the damping of a joint [N m s/rad or N s/m]."""
        self.change_dynamics(body, joint, jointDamping=damping)

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
        """Place a free body, or one that does not move, outside of physics."""
        self.bind(pybullet.resetBasePositionAndOrientation)(
            body, [float(x) for x in position], [float(x) for x in orientation]
        )
        self.bind(pybullet.resetBaseVelocity)(
            body, [float(x) for x in velocity], [float(x) for x in angular_velocity]
        )

    def place_marker(self, body: int, position: Vector3) -> None:
        """Put a marker elsewhere [m], upright."""
        self.bind(pybullet.resetBasePositionAndOrientation)(
            body, [float(x) for x in position], [0.0, 0.0, 0.0, 1.0]
        )

    def set_base_velocity(
        self, body: int, velocity: Sequence[float], angular_velocity: Sequence[float]
    ) -> None:
        """Set the velocity [m/s] and angular velocity [rad/s] of a free body, world frame."""
        self.bind(pybullet.resetBaseVelocity)(body, velocity, angular_velocity)

    def add_joint_velocity(self, body: int, joint: int, change: float) -> None:
        """Add to the velocity of a joint [rad/s or m/s]."""
        position, velocity, *_ = self.bind(pybullet.getJointState)(body, joint)
        self.bind(pybullet.resetJointState)(body, joint, position, velocity + change)

    def paint(self, body: int, link: int, colour: Colour) -> None:
        """Colour one link; what is wholly transparent is not drawn."""
        self.bind(pybullet.changeVisualShape)(body, link, rgbaColor=colour)

    def look_of_base(self, body: int) -> tuple[Vector3, Vector3]:
        """Return the edges of the box that a base looks like, and its middle in the world [m]."""
        look = self.bind(pybullet.getVisualShapeData)(body)[0]
        pose = self.bind(pybullet.getBasePositionAndOrientation)(body)
        return look[3], pybullet.multiplyTransforms(*pose, look[5], look[6])[0]

    def joint_driver(
        self, body: int, joints: Sequence[int], mode: int, **fixed: Sequence[float]
    ) -> Callable[..., None]:
        """Return a function that commands n joints for the next ``step`` in one call.

        Args:
            body: The body.
            joints: Indices of n joints.
            mode: PyBullet's ``TORQUE_CONTROL``, ``VELOCITY_CONTROL`` or ``POSITION_CONTROL``.
            fixed: Arguments of ``setJointMotorControlArray`` that stay the same, n values each;
                the function takes the others by keyword.
        """
        return partial(self.bind(pybullet.setJointMotorControlArray), body, joints, mode, **fixed)

    def _make_passive(self, body: int, *, keep_damping: bool = False) -> None:
        """Switch off the motors, and the damping, that PyBullet gives every body."""
        joints = [joint.index for joint in self.movable_joints(body)]
        if joints:
            no_force = [0.0] * len(joints)
            self.joint_driver(body, joints, pybullet.VELOCITY_CONTROL, forces=no_force)()
        if not keep_damping:
            for link in self.link_dynamics(body):
                self.change_dynamics(body, link, linearDamping=0, angularDamping=0, jointDamping=0)

    def _load(self, kind: str, load: Callable[..., Any], path: str, *args: Any, **more: Any) -> Any:
        LOADED_MODELS.add(path)
        try:
            return self.bind(load)(path, *args, **more)
        except pybullet.error as error:
            raise FileNotFoundError(
                f"PyBullet cannot load {kind}={path!r}. Give a path that exists, absolute or "
                f"relative to {pybullet_data.getDataPath()}."
            ) from error

    def _look(self, shape: Shape, size: Vector3, colour: Colour) -> int:
        kind, edges = _geometry(shape, size)
        # A visual shape calls the height of a cylinder its length.
        edges = {"length" if name == "height" else name: v for name, v in edges.items()}
        look: int = self.bind(pybullet.createVisualShape)(kind, rgbaColor=colour, **edges)
        return look

    def _joint_infos(self, body: int) -> list[Sequence[Any]]:
        count = self.bind(pybullet.getNumJoints)(body)
        return [self.bind(pybullet.getJointInfo)(body, joint) for joint in range(count)]


def _joint(info: Sequence[Any]) -> JointInfo:
    lower, upper, force, velocity = info[8:12]
    slides = info[2] == pybullet.JOINT_PRISMATIC
    return JointInfo(info[0], info[1].decode(), lower, upper, force, velocity, slides)


def _geometry(shape: Shape, size: Vector3) -> tuple[int, dict[str, Any]]:
    radius, height, _ = size
    shapes: dict[str, tuple[int, dict[str, Any]]] = {
        "box": (pybullet.GEOM_BOX, {"halfExtents": size}),
        "sphere": (pybullet.GEOM_SPHERE, {"radius": radius}),
        "cylinder": (pybullet.GEOM_CYLINDER, {"radius": radius, "height": height}),
    }
    return shapes[shape]


def _check_mjcf(path: str) -> None:
    """Refuse an MJCF of which Bullet would silently read only a part."""
    try:
        root = ElementTree.parse(found_file(path)).getroot()
    except (FileNotFoundError, ElementTree.ParseError):
        return  # PyBullet says what is wrong with it.
    tags = {one.tag for one in root.iter()} & {*_UNREAD}
    nested = root.find("default/default")
    unread = [*(f"<{tag}>" for tag in sorted(tags)), *([] if nested is None else ["classes"])]
    if unread:
        raise ValueError(
            f"urdf={path!r}: its {', '.join(unread)} are not read by PyBullet. Use engine=mujoco."
        )


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
