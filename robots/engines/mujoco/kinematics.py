"""Inverse kinematics by damped least squares."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.camera import Quaternion
from robots.engines.compiling import PluginError
from robots.engines.mujoco.native import get_library
from robots.simulation import InverseKinematics, Pose

MOST_ITERATIONS, NEAR = 20, 1e-4
"""Steps of the solver, and the error at which it ends [m and rad]."""
DAMPING, MOST_CHANGE = 0.02, 0.3
"""What bounds its steps near a singular posture, and the longest of a joint [rad or m]."""
MOST_JOINTS = 128
"""Most that ``mujoco_worlds.c`` takes."""


class LinkSolver(InverseKinematics):
    """Brings a link somewhere by some joints; the others stay as they are.

    ``mujoco_worlds.c`` has the same, whose numbers are the same.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        present: Callable[[], mujoco.MjData],
        body: int,
        joints: NDArray[np.int64],
    ) -> None:
        """Set up a solver.

        Args:
            model: The model.
            present: Returns the data whose kinematics are those of now.
            body: Body of the model that is the link.
            joints: Joints of the model.
        """
        self._model, self._present, self._body = model, present, body
        self._data = mujoco.MjData(model)
        self._positions = np.array(model.jnt_qposadr[joints], np.int32)
        self._dofs = np.array(model.jnt_dofadr[joints], np.int32)
        self._goal, self._solution = np.zeros(7), np.zeros(len(joints))
        self._work = np.zeros(6 * model.nv)
        self._native: Any = None
        if len(joints) > MOST_JOINTS:
            return
        try:
            self._native = get_library().worlds_reach
        except PluginError:
            return  # The world has said why.
        arrays = (self._positions, self._dofs, self._goal, self._work, self._solution)
        self._arguments = (
            *(model._address, self._data._address, body, len(joints)),
            *(ctypes.c_void_p(array.ctypes.data) for array in arrays),
        )

    def pose(self) -> Pose:
        """Return where the link's frame is now."""
        data = self._present()
        w, x, y, z = data.xquat[self._body].tolist()
        return data.xpos[self._body].tolist(), (x, y, z, w)

    def solve(self, position: Sequence[float], orientation: Quaternion | None) -> list[float]:
        """Return positions of the joints [rad or m], near the present ones."""
        present = self._present()
        self._data.qpos[:] = present.qpos
        if self._model.nmocap:
            self._data.mocap_pos[:] = present.mocap_pos
        self._goal[:3] = position
        if orientation is not None:
            x, y, z, w = orientation
            self._goal[3:] = w, x, y, z
        rows = 3 if orientation is None else 6
        if self._native is None:
            self._solve(rows)
        else:
            self._native(*self._arguments, rows)
        solution: list[float] = self._solution.tolist()
        return solution

    def _solve(self, rows: int) -> None:
        model, data, joints = self._model, self._data, range(len(self._dofs))
        jacobian = np.zeros((6, model.nv))
        error, back, change = np.zeros(6), np.zeros(4), np.zeros(4)
        square, weights = np.zeros((rows, rows)), np.zeros(rows)
        for _ in range(MOST_ITERATIONS):
            mujoco.mj_kinematics(model, data)
            error[:3] = self._goal[:3] - data.xpos[self._body]
            if rows == 6:
                mujoco.mju_negQuat(back, data.xquat[self._body])
                mujoco.mju_mulQuat(change, self._goal[3:], back)
                mujoco.mju_quat2Vel(error[3:], change, 1.0)
            if float(np.abs(error[:rows]).max()) < NEAR:
                break
            mujoco.mj_comPos(model, data)
            mujoco.mj_jacBody(model, data, jacobian[:3], jacobian[3:], self._body)
            own = jacobian[:rows, self._dofs].tolist()
            for i in range(rows):
                for k in range(rows):
                    total = DAMPING * DAMPING if i == k else 0.0
                    for joint in joints:
                        total += own[i][joint] * own[k][joint]
                    square[i, k] = total
            mujoco.mju_cholFactor(square, 0.0)
            mujoco.mju_cholSolve(weights, square, error[:rows])
            steps = [0.0 for _ in joints]
            for i, weight in enumerate(weights.tolist()):
                for joint in joints:
                    steps[joint] += own[i][joint] * weight
            greatest = max(abs(step) for step in steps)
            share = MOST_CHANGE / greatest if greatest > MOST_CHANGE else 1.0
            for joint, step in zip(self._positions, steps, strict=True):
                data.qpos[joint] += step * share
        self._solution[:] = data.qpos[self._positions]
