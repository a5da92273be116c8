"""What is read of a MuJoCo world."""

from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.camera import Vector3
from robots.engines.mujoco.compiled import CompiledWorld, Floats
from robots.engines.mujoco.records import BOTH, TOUCHED
from robots.simulation import LinkPlace, Pose


class ReadWorld(CompiledWorld):
    """A world whose joints, links, contacts and rays are read."""

    def link_places(self, body: int) -> list[LinkPlace]:
        """Return where the links of a body are: the base, then those of index 0, 1, ..."""
        model, data = self.model, self.data
        places = []
        for index, link in enumerate(self._record(body).links, start=-1):
            number = self._body_ids[body, index]
            (name, kind), origin, axis = link.hangs, data.xpos[number], np.zeros(3)
            if link.joint is not None:
                joint = self._joint_ids[body, index]
                name, kind = link.joint.name, "prismatic" if link.joint.slides else "revolute"
                origin, axis = data.xanchor[joint], data.xaxis[joint]
            w, x, y, z = data.xquat[number].tolist()
            hangs = link.parent if index >= 0 else -2, name, kind, _vector(origin), _vector(axis)
            box = self._box([model.geom(geom).id for geom in link.touched])
            centre = _vector(data.xipos[number])
            places.append(LinkPlace(link.name, *hangs, (x, y, z, w), centre, box))
        return places

    def _box(self, geoms: Sequence[int]) -> tuple[Vector3, Vector3] | None:
        """Return the lowest and the highest corner of the box around geoms [m], if any."""
        ends = []
        for geom in geoms:
            turn, middle = self._data.geom_xmat[geom].reshape(3, 3), self._data.geom_xpos[geom]
            down, up = reach_of_geom(self._model, geom, turn)
            ends += [middle + down, middle + up]
        return (_vector(np.min(ends, axis=0)), _vector(np.max(ends, axis=0))) if ends else None

    def joint_reader(
        self, body: int, joints: Sequence[int], efforts: bool = False
    ) -> Callable[[], list[float]]:
        """Return a function that reads n joints."""
        known: list[Any] = [None, None]

        def read() -> list[float]:
            if known[0] is not self.model:
                q, v, columns = self.places_of_joints(body, joints)
                known[:] = self._model, (span(q), span(v), columns)
            data, (q, v, columns) = self._data, known[1]
            row: list[float] = data.qpos[q].tolist()
            row += data.qvel[v].tolist()
            if efforts:
                applied = self._motors.efforts.tolist()
                row += [applied[column] if column >= 0 else 0.0 for column in columns]
            return row

        return read

    def pose_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the pose of the base's centre of mass."""

        def read() -> Pose:
            data = self.data
            number = self._body_ids[body, -1]
            w, x, y, z = data.xquat[number].tolist()
            return data.xipos[number].tolist(), (x, y, z, w)

        return read

    def velocity_reader(self, body: int) -> Callable[[], Pose]:
        """Return a function that reads the base's velocity [m/s] and angular velocity [rad/s]."""

        def read() -> Pose:
            data = self.data
            number = self._body_ids[body, -1]
            velocity, turning = self._velocities(data, np.array([number]))
            return velocity[0].tolist(), turning[0].tolist()

        return read

    def link_reader(
        self, body: int, links: Sequence[int], as_left: bool = False
    ) -> Callable[[], list[list[float]]]:
        """Return a function that reads n links, none of which is the base."""
        del as_left  # The kinematics of now are there anyway.
        known: list[Any] = [None, None]

        def read() -> list[list[float]]:
            data = self.data
            if known[0] is not self._model:
                known[:] = self._model, np.array([self._body_ids[body, link] for link in links])
            ids = known[1]
            velocity, turning = self._velocities(data, ids)
            turns = data.xquat[ids][:, [1, 2, 3, 0]]
            parts = (data.xpos[ids], turns, velocity, turning)
            return [part.ravel().tolist() for part in parts]

        return read

    def _velocities(self, data: mujoco.MjData, ids: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return velocities of centres of mass and angular velocities, shape (n, 3) each."""
        moving = data.cvel[ids]
        turning = moving[:, :3]
        # MuJoCo's are those of the point of a body that is where its tree has its centre of mass.
        arm = data.xipos[ids] - data.subtree_com[self._model.body_rootid[ids]]
        (a, b, c), (x, y, z) = turning.T, arm.T
        velocity = moving[:, 3:] + np.stack([b * z - c * y, c * x - a * z, a * y - b * x], axis=1)
        return velocity, turning

    def contact_reader(self, body: int, links: Sequence[int]) -> Callable[[], list[float]]:
        """Return a function that reads which of n links touch another body."""
        columns = {(body, link): column for column, link in enumerate(links)}

        def read() -> list[float]:
            data = self.data
            touched = [0.0] * len(columns)
            if not data.ncon:
                return touched
            near = data.contact.dist <= 0.0
            for first, second in data.contact.geom[near].tolist():
                one, other = self._link_of_geom[first], self._link_of_geom[second]
                if one[0] != other[0]:
                    for place in (one, other):
                        if place in columns:
                            touched[columns[place]] = 1.0
            return touched

        return read

    def ray_caster(self) -> Callable[[Sequence[Any], Sequence[Any]], list[float]]:
        """Return a function that follows n rays from points to points in the world [m]."""
        groups = np.zeros(mujoco.mjNGROUP, np.uint8)
        groups[[TOUCHED, BOTH]] = 1
        met = np.zeros(1, np.int32)

        def cast(starts: Sequence[Any], stops: Sequence[Any]) -> list[float]:
            data, model = self.data, self._model
            shares = []
            for start, way in zip(
                np.array(starts), np.array(stops) - np.array(starts), strict=True
            ):
                share = mujoco.mj_ray(model, data, start, way, groups, 1, -1, met)
                shares.append(share if 0.0 <= share <= 1.0 else 1.0)
            return shares

        return cast


def reach_of_geom(model: mujoco.MjModel, geom: int, turn: Floats) -> tuple[Floats, Floats]:
    """Return how far a turned geom reaches from its middle along the axes [m], down and up."""
    kind, (a, b, c) = mujoco.mjtGeom(model.geom_type[geom]), model.geom_size[geom]
    up = turn[:, 2]
    if kind == mujoco.mjtGeom.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        start = model.mesh_vertadr[mesh]
        points = model.mesh_vert[start : start + model.mesh_vertnum[mesh]] @ turn.T
        return points.min(axis=0), points.max(axis=0)
    if kind == mujoco.mjtGeom.mjGEOM_SPHERE:
        half = np.full(3, a)
    elif kind == mujoco.mjtGeom.mjGEOM_CAPSULE:
        half = a + b * np.abs(up)
    elif kind == mujoco.mjtGeom.mjGEOM_CYLINDER:
        half = a * np.sqrt(np.maximum(1.0 - up * up, 0.0)) + b * np.abs(up)
    elif kind == mujoco.mjtGeom.mjGEOM_ELLIPSOID:
        half = np.sqrt((turn * turn) @ np.array([a * a, b * b, c * c]))
    else:
        half = np.abs(turn) @ np.array([a, b, c])
    return -half, half


def _vector(numbers: Floats) -> Vector3:
    x, y, z = numbers.tolist()
    return x, y, z


def span(places: NDArray[Any]) -> Any:
    """Return indices as a slice where they follow each other, which is read faster."""
    first = int(places[0]) if len(places) else 0
    is_row = bool((np.asarray(places) == first + np.arange(len(places))).all())
    return slice(first, first + len(places)) if is_row else np.array(places, np.int64)
