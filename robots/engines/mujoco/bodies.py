"""Adds bodies to a MuJoCo specification, and remembers which of its elements are theirs."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.ballast import BALLAST
from robots.camera import Colour, Quaternion, Vector3
from robots.engines.models import found_file
from robots.engines.mujoco import inertia
from robots.engines.mujoco.meshes import read_mesh
from robots.engines.mujoco.mjcf import read_mjcf
from robots.engines.mujoco.records import (
    LEAST_INERTIA,
    LEAST_KG,
    MOTOR_IMPEDANCE,
    SEEN,
    TOUCHED,
    BodyRecord,
    LinkRecord,
    Pair,
    can_move,
    set_damping,
    set_moments,
    touch_each_other,
)
from robots.engines.mujoco.urdf import Geometry, Joint, Node, Quat, read_urdf
from robots.simulation import JointInfo, RobotFile, Shape

_KINDS = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "plane": mujoco.mjtGeom.mjGEOM_PLANE,
    "mesh": mujoco.mjtGeom.mjGEOM_MESH,
}
_FLAT_M = 50.0
_GROUND: Colour = (1.0, 1.0, 1.0, 1.0)
_LIGHT, _SHADE = (0.95, 0.96, 0.98), (0.80, 0.85, 0.92)


class Bodies:
    """Builds a specification body by body.

    Attributes:
        spec: The specification.
        records: The bodies by number.
    """

    def __init__(self, spec: mujoco.MjSpec, draws: bool) -> None:
        self.spec, self.draws = spec, draws
        self.records: list[BodyRecord] = []
        self._meshes: dict[tuple[str, tuple[float, ...]], str] = {}

    def add_urdf(self, file: RobotFile) -> int:
        """Add the robot of a URDF."""
        nodes = read_urdf(found_file(file.path), file.ballast_m)
        number = len(self.records)
        # As on Bullet, what weighs nothing does not move.
        is_fixed = file.fixed_base or nodes[0].link.mass_kg <= 0
        elements: list[mujoco.MjsBody] = []
        links: list[LinkRecord] = []
        for node in nodes:
            above = self.spec.worldbody if node.joint is None else elements[node.parent + 1]
            name = f"{number}/{node.link.name}"
            place = (file.position, _wxyz(file.orientation)) if node.joint is None else None
            joint = node.joint
            position, turn = place or (joint.position, joint.turn)  # type: ignore[union-attr]
            body = above.add_body(name=name, pos=position, quat=turn)
            record = LinkRecord(node.link.name, node.parent, name, friction=node.link.friction)
            if joint is not None and joint.is_movable:
                record.joint_element = f"{name}/joint"
                record.joint = self._add_joint(body, record, joint, len(links) - 1, file)
            elif joint is not None:
                record.hangs = joint.name, "fixed"
            elif not is_fixed:
                body.add_freejoint(name=f"{name}/free")
            self._set_inertia(body, node, file)
            for shape in node.link.collisions:
                record.touched.append(self._add_geom(body, shape, TOUCHED, name))
            for shape in (node.link.visuals or node.link.collisions) if self.draws else ():
                record.seen.append(self._add_geom(body, shape, SEEN, name))
            elements.append(body)
            links.append(record)
        moves = "fixed" if is_fixed else "free"
        flags = file.self_collision, file.ancestor_collision
        return self._keep(BodyRecord(number, links, moves, *flags))

    def add_mjcf(self, file: RobotFile) -> int:
        """Add the robot of an MJCF; its joints move links of their own, as Bullet reads them.

        Raises:
            ValueError: If it has more than one body below the world.
        """
        number = len(self.records)
        robot = read_mjcf(found_file(file.path), f"{number}/", keep_joints=file.keep_joints)
        robot.spec.option.timestep = self.spec.option.timestep
        robot.spec.option.gravity = self.spec.option.gravity
        frame = self.spec.worldbody.add_frame(pos=file.position, quat=_wxyz(file.orientation))
        self.spec.attach(robot.spec, prefix=f"{number}/", frame=frame)
        moves = "free" if robot.is_free else "fixed"
        flags = file.self_collision, file.ancestor_collision
        return self._keep(BodyRecord(number, robot.links, moves, *flags))

    def add_ground(self, path: str) -> int:
        """Add a plane at height 0, or the links of a URDF that is not flat."""
        place = found_file(path)
        shapes = [] if place.suffix == ".sdf" else read_urdf(place)[0].link.collisions
        is_flat = not shapes or all(
            shape.kind == "plane" or (shape.kind == "box" and min(shape.size[:2]) > _FLAT_M)
            for shape in shapes
        )
        if not is_flat:
            return self.add_urdf(RobotFile(path))
        number = len(self.records)
        record = LinkRecord("ground", -1, "world", friction=1.0)
        plane = Geometry("plane", (0.0, 0.0, 1.0), colour=_GROUND)
        for group, names in ((TOUCHED, record.touched), (SEEN, record.seen)):
            if group == TOUCHED or self.draws:
                names.append(self._add_geom(self.spec.worldbody, plane, group, f"{number}/ground"))
        for name in record.seen:
            self.spec.geom(name).material = self._ground_material()
        return self._keep(BodyRecord(number, [record]))

    def _ground_material(self) -> str:
        """Return the material of a chequered ground, on which a motion is seen."""
        name = "ground"
        if self.spec.material(name) is None:
            self.spec.add_texture(
                name=name, type=mujoco.mjtTexture.mjTEXTURE_2D, width=256, height=256,
                builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER, rgb1=_LIGHT, rgb2=_SHADE,
            )  # fmt: skip
            textures = [""] * mujoco.mjtTextureRole.mjNTEXROLE
            textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = name
            self.spec.add_material(
                name=name, textures=textures, texuniform=True, texrepeat=(0.5, 0.5)
            )
        return name

    def add_shape(
        self,
        shape: Shape,
        size: Vector3,
        position: Vector3,
        orientation: Quaternion,
        colour: Colour,
        *,
        mass_kg: float = 0.0,
        friction: float = 0.5,
        touches: bool = True,
    ) -> int:
        """Add a body of one shape; without a mass it is moved by hand alone."""
        number = len(self.records)
        name = f"{number}/body"
        moves = "free" if mass_kg > 0 else "placed"
        body = self.spec.worldbody.add_body(
            name=name, pos=position, quat=_wxyz(orientation), mocap=mass_kg == 0
        )
        radius, length, _ = size
        sizes = {"box": size, "sphere": (radius,), "cylinder": (radius, 0.5 * length)}
        geometry = Geometry(shape, sizes[shape], colour=colour)
        if mass_kg > 0:
            body.add_freejoint(name=f"{name}/free")
            set_moments(body, mass_kg, mass_kg * inertia.of_shape(geometry))
        else:
            set_moments(body, 0.0, np.zeros(3))
        record = LinkRecord("body", -1, name, friction=friction)
        if touches:
            record.touched.append(self._add_geom(body, geometry, TOUCHED, name))
        if self.draws:
            record.seen.append(self._add_geom(body, geometry, SEEN, name))
        return self._keep(BodyRecord(number, [record], moves))

    def add_heights(self, heights: NDArray[np.float64], cell_m: float, colour: Colour) -> int:
        """Add an uneven ground that is placed by hand; see ``Simulation.add_heights``."""
        number = len(self.records)
        name, count = f"{number}/ground", len(heights)
        half, top = 0.5 * (count - 1) * cell_m, float(np.ptp(heights))
        unit = (heights - heights.min()) / (top or 1.0)
        self.spec.add_hfield(
            name=name, nrow=count, ncol=count, size=(half, half, top or 1e-6, 1.0),
            userdata=unit.ravel().astype(np.float32),
        )  # fmt: skip
        body = self.spec.worldbody.add_body(name=name, mocap=True)
        set_moments(body, 0.0, np.zeros(3))
        record = LinkRecord("ground", -1, name, friction=1.0)
        for group, names in ((TOUCHED, record.touched), (SEEN, record.seen)):
            names.append(f"{name}/{group}")
            body.add_geom(
                name=names[-1], type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname=name, group=group,
                pos=(0.0, 0.0, -0.5 * top), rgba=colour, contype=0, conaffinity=0,
            )  # fmt: skip
        return self._keep(BodyRecord(number, [record], "placed"))

    def collide(self) -> list[Pair]:
        """Let everything that can collide do so; return what was added since the last call."""
        added: list[Pair] = []
        known = {pair.name for pair in self.spec.pairs}
        for first, second in self._colliding():
            for a in self.records[first[0]].link(first[1]).touched:
                for b in self.records[second[0]].link(second[1]).touched:
                    if f"{a}+{b}" not in known:
                        self.spec.add_pair(name=f"{a}+{b}", geomname1=a, geomname2=b)
                    added.append(Pair(first, second, f"{a}+{b}"))
        return added

    def _colliding(self) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        places = [(one, index) for one in self.records for index in range(-1, len(one.links) - 1)]
        places = [place for place in places if place[0].link(place[1]).touched]
        for (one, first), (other, second) in combinations(places, 2):
            if one is other:
                if not touch_each_other(one, first, second):
                    continue
            elif not (can_move(one, first) or can_move(other, second)):
                continue
            yield (one.number, first), (other.number, second)

    def _keep(self, record: BodyRecord) -> int:
        self.records.append(record)
        return record.number

    def _add_joint(
        self, body: mujoco.MjsBody, record: LinkRecord, joint: Joint, index: int, file: RobotFile
    ) -> JointInfo:
        slides = joint.kind == "prismatic"
        is_limited = joint.lower < joint.upper
        made = body.add_joint(
            name=record.joint_element,
            type=mujoco.mjtJoint.mjJNT_SLIDE if slides else mujoco.mjtJoint.mjJNT_HINGE,
            axis=joint.axis,
            limited=mujoco.mjtLimited.mjLIMITED_TRUE if is_limited else 0,
            range=(joint.lower, joint.upper) if is_limited else (0.0, 0.0),
            solimp_friction=MOTOR_IMPEDANCE,
        )
        if file.keep_damping:
            set_damping(made, joint.damping)
        numbers = joint.lower, joint.upper, joint.max_force, joint.max_velocity
        return JointInfo(index, joint.name, *numbers, slides=slides)

    def _set_inertia(self, body: mujoco.MjsBody, node: Node, file: RobotFile) -> None:
        link = node.link
        mass = link.mass_kg
        moments = None if file.inertia_from_file else inertia.of_link(link)
        tensor = link.inertia if moments is None else np.diag(moments)
        if link.name.startswith(BALLAST) or mass > 0:
            mass = max(mass, LEAST_KG)
            principal, axes = np.linalg.eigh(0.5 * (tensor + tensor.T))
            turn = inertia.matrix(link.turn)
            if np.count_nonzero(tensor - np.diag(np.diag(tensor))):
                turn = turn @ _right_handed(axes)
            else:
                principal = np.diag(tensor)
            set_moments(body, mass, principal, link.centre, _quat(turn))
        elif node.joint is not None:
            set_moments(body, LEAST_KG, np.full(3, LEAST_INERTIA))
        else:
            set_moments(body, 0.0, np.zeros(3))

    def _add_geom(self, body: mujoco.MjsBody, shape: Geometry, group: int, of: str) -> str:
        name = f"{of}/{group}/{len(list(body.geoms))}"
        more = {}
        if shape.kind == "mesh":
            assert shape.mesh is not None
            more["meshname"] = self._mesh(shape.mesh, shape.size)
        size = [*(() if shape.kind == "mesh" else shape.size), 0.0, 0.0, 0.0][:3]
        body.add_geom(
            name=name, type=_KINDS[shape.kind], size=size, pos=shape.position, quat=shape.turn,
            group=group, rgba=shape.colour, contype=0, conaffinity=0, density=0.0, **more,
        )  # fmt: skip
        return name

    def _mesh(self, path: Path, scale: Sequence[float]) -> str:
        key = str(path), tuple(scale)
        if key not in self._meshes:
            self._meshes[key] = f"mesh{len(self._meshes)}"
            points, triangles = read_mesh(path)
            self.spec.add_mesh(
                name=self._meshes[key], uservert=points.ravel(), userface=triangles.ravel(),
                scale=list(scale), inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,
            )  # fmt: skip
        return self._meshes[key]


def _right_handed(axes: NDArray[np.float64]) -> NDArray[np.float64]:
    return axes if np.linalg.det(axes) > 0 else axes * np.array([1.0, 1.0, -1.0])


def _quat(turn: NDArray[np.float64]) -> Sequence[float]:
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, np.ascontiguousarray(turn).ravel())
    return quat.tolist()


def _wxyz(orientation: Sequence[float]) -> Quat:
    x, y, z, w = (float(part) for part in orientation)
    return w, x, y, z
