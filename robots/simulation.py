"""The PyBullet client: connect, step, batched reads and writes, render, close."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pybullet
import pybullet_data
from numpy.typing import NDArray

from robots.camera import Camera, Colour, Vector3
from robots.display import require_display

_MOVABLE = (pybullet.JOINT_REVOLUTE, pybullet.JOINT_PRISMATIC)


@dataclass(frozen=True)
class JointInfo:
    """What a URDF states about one movable joint."""

    index: int
    """Index of the joint, and of its child link, in its body."""
    name: str
    """Name in the URDF."""
    lower: float
    """Lower limit [m or rad]; above ``upper`` where the joint has no limits."""
    upper: float
    """Upper limit [m or rad]."""
    max_force: float
    """Effort limit [N or N m]."""


class Simulation:
    """One PyBullet world, and the only place that calls PyBullet.

    Not thread-safe. It owns its client and must not be copied: a copy would share the client, and
    would disconnect the original when it is collected.

    Attributes:
        client: PyBullet's client id; -1 after ``close``.
        step_s: Simulated time of one ``step`` [s].
        gui: Whether the world is shown in a window.
    """

    def __init__(
        self,
        *,
        time_step_s: float = 1 / 200,
        substeps: int = 4,
        hold_torques: bool = False,
        gravity_m_s2: float = 9.81,
        gui: bool = False,
    ) -> None:
        """Connect and set up an empty world.

        Args:
            time_step_s: Length of one physics step [s], rounded to single precision. The rounded
                value times ``substeps`` is exact in double precision, so that Bullet, which
                divides it again, neither drops a substep nor carries a remainder over.
            substeps: Physics steps in one ``step``.
            hold_torques: Run the substeps inside one engine call. Bullet clears joint torques
                after every call, so a torque needs this to act over all substeps. Joint motors
                need the opposite: Bullet scales their strength by the length of a call.
            gravity_m_s2: Downward gravity.
            gui: Open a window.

        Raises:
            ValueError: If the time step or the number of substeps is not positive.
            DisplayError: If a window is asked for where there is no display.
        """
        self.client = -1
        if time_step_s <= 0 or substeps < 1:
            raise ValueError(
                f"time_step_s={time_step_s} and substeps={substeps} must be positive. "
                "Set for example time_step_s=0.005 and substeps=4."
            )
        if gui:
            require_display()
        physics_step_s = float(np.float32(time_step_s))
        self.step_s = physics_step_s * substeps
        self.gui = gui
        self.client = pybullet.connect(pybullet.GUI if gui else pybullet.DIRECT)
        if self.client < 0:
            raise RuntimeError("PyBullet could not connect. Close environments no longer in use.")
        self._saved_state = -1
        self._flags = 0
        self._further_calls = range(0 if hold_torques else substeps - 1)
        self._step = self._bind(pybullet.stepSimulation)
        self._bind(pybullet.setAdditionalSearchPath)(pybullet_data.getDataPath())
        self._bind(pybullet.setGravity)(0, 0, -gravity_m_s2)
        self._bind(pybullet.setPhysicsEngineParameter)(
            fixedTimeStep=self.step_s if hold_torques else physics_step_s,
            numSubSteps=substeps if hold_torques else 0,
            deterministicOverlappingPairs=1,
        )

    def load_urdf(
        self, path: str, *, position: Vector3 = (0, 0, 0), fixed_base: bool = True, flags: int = 0
    ) -> int:
        """Load a body, with its default joint motors and all damping switched off.

        Args:
            path: File of the URDF, also searched for in ``pybullet_data``.
            position: World position of the base [m].
            fixed_base: Whether the base is bolted to the world.
            flags: PyBullet's ``URDF_*`` flags.

        Returns:
            The id of the body.

        Raises:
            FileNotFoundError: If PyBullet cannot load the file.
        """
        self._flags |= flags
        try:
            body: int = self._bind(pybullet.loadURDF)(
                path, position, useFixedBase=fixed_base, flags=flags
            )
        except pybullet.error as error:
            raise FileNotFoundError(
                f"PyBullet cannot load urdf={path!r}. Give a path that exists, absolute or "
                f"relative to {pybullet_data.getDataPath()}."
            ) from error
        joints = [joint.index for joint in self.movable_joints(body)]
        # PyBullet's default motors hold every joint in place.
        no_force = [0.0] * len(joints)
        self.joint_driver(body, joints, pybullet.VELOCITY_CONTROL, forces=no_force)()
        for link in range(-1, self._bind(pybullet.getNumJoints)(body)):
            self._bind(pybullet.changeDynamics)(
                body, link, linearDamping=0, angularDamping=0, jointDamping=0
            )
        return body

    def movable_joints(self, body: int) -> list[JointInfo]:
        """Return the revolute and prismatic joints of a body in the order of its URDF."""
        count = self._bind(pybullet.getNumJoints)(body)
        infos = [self._bind(pybullet.getJointInfo)(body, joint) for joint in range(count)]
        return [
            JointInfo(info[0], info[1].decode(), info[8], info[9], info[10])
            for info in infos
            if info[2] in _MOVABLE
        ]

    def joint_reader(self, body: int, joints: Sequence[int]) -> Callable[[], Sequence[Any]]:
        """Return a function that reads n joints in one call, as PyBullet's ``getJointStates``."""
        return partial(self._bind(pybullet.getJointStates), body, joints)

    def joint_driver(
        self, body: int, joints: Sequence[int], mode: int, **fixed: Sequence[float]
    ) -> Callable[..., None]:
        """Return a function that commands n joints for the next ``step`` in one call.

        Args:
            body: Id of the body.
            joints: Indices of n joints.
            mode: PyBullet's ``TORQUE_CONTROL``, ``VELOCITY_CONTROL`` or ``POSITION_CONTROL``.
            fixed: n values for each of PyBullet's ``forces``, ... that stay the same.

        Returns:
            A function of the remaining arguments of ``setJointMotorControlArray``, by keyword.
        """
        drive = self._bind(pybullet.setJointMotorControlArray)
        return partial(drive, body, joints, mode, **fixed)

    def reset_joints(
        self,
        body: int,
        joints: Sequence[int],
        position: NDArray[np.float64],
        velocity: NDArray[np.float64],
    ) -> None:
        """Place joints, outside of physics.

        Args:
            body: Id of the body.
            joints: Indices of n joints.
            position: [m or rad], shape (n,).
            velocity: [m/s or rad/s], shape (n,).
        """
        self._bind(pybullet.resetJointStatesMultiDof)(
            body, joints, position.reshape(-1, 1).tolist(), velocity.reshape(-1, 1).tolist()
        )

    def step(self) -> None:
        """Advance the world by ``step_s``."""
        self._step()
        for _ in self._further_calls:
            self._step()

    def save(self) -> None:
        """Keep the present state as the nominal one, in place of an earlier one."""
        if self._saved_state >= 0:
            self._bind(pybullet.removeState)(self._saved_state)
        self._saved_state = self._bind(pybullet.saveState)()

    def restore(self) -> None:
        """Go back to the nominal state, whatever happened since; masses are not part of it."""
        self._bind(pybullet.restoreState)(self._saved_state)

    def state_beyond_joints(self, body: int) -> str | None:
        """Return what of the state of the world the movable joints of a body may leave out.

        Bullet keeps contacts, and the impulses that start its next solution of them, where Python
        cannot set them, and hands out the pose of a free base rounded.

        Returns:
            A reason, or None: nothing but the joints moves, and there is nothing to touch.
        """
        if self._flags:
            return f"a body was loaded with flags={self._flags} and may touch itself"
        if self._bind(pybullet.getNumConstraints)():
            return "the world has constraints"
        for index in range(self._bind(pybullet.getNumBodies)()):
            other = self._bind(pybullet.getBodyUniqueId)(index)
            joints = range(self._bind(pybullet.getNumJoints)(other))
            if self._bind(pybullet.getDynamicsInfo)(other, -1)[0] != 0:
                return f"the base of body {other} is free"
            if other == body:
                kinds = {self._bind(pybullet.getJointInfo)(body, joint)[2] for joint in joints}
                if kinds - {pybullet.JOINT_FIXED, *_MOVABLE}:
                    return "the robot has joints that are neither revolute nor prismatic"
            elif joints or self._bind(pybullet.getCollisionShapeData)(other, -1):
                return f"body {other} can move or be touched"
        return None

    def add_box(self, half_extents: Vector3, position: Vector3, colour: Colour) -> None:
        """Add scenery: a box that is seen but touches nothing, at a world position [m]."""
        shape = self._bind(pybullet.createVisualShape)(
            pybullet.GEOM_BOX, halfExtents=half_extents, rgbaColor=colour
        )
        self._bind(pybullet.createMultiBody)(baseVisualShapeIndex=shape, basePosition=position)

    def paint(self, body: int, link: int, colour: Colour) -> None:
        """Colour one link; -1 is the base."""
        self._bind(pybullet.changeVisualShape)(body, link, rgbaColor=colour)

    def camera_image(self, camera: Camera) -> NDArray[np.uint8]:
        """Return what a camera sees as RGB, shape (height, width, 3)."""
        view = pybullet.computeViewMatrixFromYawPitchRoll(
            camera.target, camera.distance_m, camera.yaw_deg, camera.pitch_deg, 0, 2
        )
        aspect = camera.width / camera.height
        projection = pybullet.computeProjectionMatrixFOV(camera.fov_deg, aspect, 0.1, 100)
        image = self._bind(pybullet.getCameraImage)(
            camera.width,
            camera.height,
            view,
            projection,
            lightDirection=(1.5, -3.0, 6.0),
            lightDistance=6.0,
            shadow=0,  # Shadows triple the time of a frame.
            lightAmbientCoeff=0.65,
            lightDiffuseCoeff=0.5,
            lightSpecularCoeff=0.05,
            renderer=pybullet.ER_BULLET_HARDWARE_OPENGL if self.gui else pybullet.ER_TINY_RENDERER,
        )[2]
        rgba = np.asarray(image, np.uint8).reshape(camera.height, camera.width, 4)
        return rgba[:, :, :3].copy()

    def aim_window(self, camera: Camera) -> None:
        """Point the window at the camera's target and hide PyBullet's panels."""
        self._bind(pybullet.configureDebugVisualizer)(pybullet.COV_ENABLE_GUI, 0)
        self._bind(pybullet.resetDebugVisualizerCamera)(
            camera.distance_m, camera.yaw_deg, camera.pitch_deg, camera.target
        )

    def close(self) -> None:
        """Disconnect; calling it again does nothing."""
        client, self.client = self.client, -1
        if client >= 0 and pybullet.isConnected(client):
            pybullet.disconnect(client)

    def _bind(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return partial(function, physicsClientId=self.client)

    def __del__(self) -> None:
        """Disconnect a simulation that was dropped without ``close``."""
        if getattr(self, "client", -1) >= 0:
            self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse to be copied or pickled.

        Raises:
            TypeError: Always; ``copy`` and ``pickle`` both come here.
        """
        raise TypeError(
            "A Simulation cannot be copied or pickled: the copy would share, and then disconnect, "
            "its PyBullet client. Make a second environment instead."
        )
