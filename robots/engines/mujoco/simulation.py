"""A world in MuJoCo: how it is built, driven and placed."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, ClassVar

import mujoco
import numpy as np
from numpy.typing import NDArray

from robots.ballast import BALLAST
from robots.camera import Camera, Colour, Quaternion, Vector3
from robots.engines.mujoco.kinematics import LinkSolver
from robots.engines.mujoco.motors import MotorSet, position_set, velocity_set
from robots.engines.mujoco.readers import ReadWorld, span
from robots.simulation import (
    LOADED_MODELS,
    InverseKinematics,
    JointInfo,
    LinkDynamics,
    Physics,
    Pose,
    RobotFile,
    Shape,
)

Floats = NDArray[np.float64]


class MujocoSimulation(ReadWorld):
    """A world of bodies in MuJoCo."""

    engine: ClassVar[str] = "mujoco"
    has_armature: ClassVar[bool] = True

    def __init__(self, physics: Physics | None = None, **options: Any) -> None:
        """Set up an empty world; see ``CompiledWorld``."""
        super().__init__(physics, **options)
        self.step, self.substep = self._step, self._substep

    # Building -----------------------------------------------------------------------------------

    def load_robot(self, file: RobotFile) -> int:
        """Load a robot, with its joints passive; return its body."""
        LOADED_MODELS.add(file.path)
        add = self.bodies.add_mjcf if file.path.endswith(".xml") else self.bodies.add_urdf
        return self._add(add(file))

    def load_ground(self, path: str) -> int:
        """Load a ground that does not move; return its body."""
        LOADED_MODELS.add(path)
        return self._add(self.bodies.add_ground(path))

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
        """Add a body of one shape; return it. Without a mass it cannot move."""
        number = self.bodies.add_shape(
            *(shape, size, position, orientation, colour), mass_kg=mass_kg, friction=friction
        )
        return self._add(number)

    def add_heights(self, heights: Floats, cell_m: float, colour: Colour) -> int:
        """Add an uneven ground around the origin; return its body."""
        return self._add(self.bodies.add_heights(heights, cell_m, colour))

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
        del max_force  # MuJoCo's gears have none.
        follower, leader = self._joint_names(body, (link, other))
        self.bodies.spec.add_equality(
            name=f"gear{self._couplings}", type=mujoco.mjtEq.mjEQ_JOINT,
            objtype=mujoco.mjtObj.mjOBJ_JOINT, name1=follower, name2=leader,
            data=[offset, ratio, *[0.0] * (mujoco.mjNEQDATA - 2)],
        )  # fmt: skip
        self._couplings += 1
        self._add(0)

    # What a body is -----------------------------------------------------------------------------

    def movable_joints(self, body: int) -> list[JointInfo]:
        """Return the revolute and prismatic joints of a body in the order of its file."""
        return [link.joint for link in self._record(body).links if link.joint is not None]

    def links(self, body: int) -> dict[str, int]:
        """Return the index of every link of a body by name, but those of its ballast."""
        links = enumerate(self._record(body).links, start=-1)
        return {one.name: index for index, one in links if not one.name.startswith(BALLAST)}

    def ballast(self, body: int) -> list[int]:
        """Return the links that ``ballast_m`` added along +x, -x, +y, -y, +z and -z, if any."""
        links = enumerate(self._record(body).links, start=-1)
        found = {one.name: index for index, one in links if one.name.startswith(BALLAST)}
        return [found[name] for name in sorted(found)]

    def trunk(self, body: int) -> int:
        """Return the heaviest link that is, by fixed joints alone, one with the base."""
        record, masses, rigid = self._record(body), self.link_dynamics(body), [-1]
        for index, link in enumerate(record.links[1:]):
            if link.joint is None and link.parent in rigid and index in masses:
                rigid.append(index)
        return max(rigid, key=lambda link: masses[link].mass_kg)

    def link_dynamics(self, body: int) -> dict[int, LinkDynamics]:
        """Return mass, inertia and friction of every link of a body but its ballast."""
        model, found = self.model, {}
        for index in self.links(body).values():
            number, mass, moments = self._body_ids[body, index], 0.0, [0.0] * 3
            if self._record(body).link(index).has_mass:
                mass, moments = float(model.body_mass[number]), model.body_inertia[number].tolist()
            x, y, z = moments
            found[index] = LinkDynamics(mass, (x, y, z), self._friction[body, index])
        return found

    def set_mass(self, body: int, link: int, mass_kg: float, inertia: Sequence[float]) -> None:
        """Set the mass of a link, and its moments about its principal axes [kg m^2]."""
        assert self.model is not None
        self._masses[body, link] = mass_kg, inertia
        self._set_masses({(body, link): (mass_kg, inertia)})

    def set_friction(
        self, body: int, link: int, friction: float, restitution: float | None = None
    ) -> None:
        """Set the coefficient of friction of a link; restitution has no meaning here."""
        del restitution
        self._friction[body, link] = friction
        if self._is_compiled:
            self._set_frictions((body, link))

    def set_joint_damping(self, body: int, joint: int, damping: float) -> None:
        """Set the damping of a joint [N m s/rad or N s/m]."""
        (number,) = self._joints(body, [joint])
        self._damping[body, joint] = damping
        self._model.dof_damping[self._model.jnt_dofadr[number]] = damping
        self._is_current = False

    def set_armature(self, body: int, joint: int, armature: float) -> None:
        """Set the inertia that a joint's motor adds to its motion [kg m^2 or kg]."""
        (number,) = self._joints(body, [joint])
        self._armature[body, joint] = armature
        self._model.dof_armature[self._model.jnt_dofadr[number]] = armature
        self._masses_changed, self._is_current = True, False

    def set_gravity(self, gravity_m_s2: float) -> None:
        """Set the downward gravity."""
        self.bodies.spec.option.gravity[2] = -gravity_m_s2
        if self._is_compiled:
            self._model.opt.gravity[2] = -gravity_m_s2
            self._is_current = False

    # Driving ------------------------------------------------------------------------------------

    def torque_motors(self, body: int, joints: Sequence[int]) -> Callable[[list[float]], None]:
        """Return a function that applies n torques or forces until they are set again."""
        known: list[Any] = [None, None]

        def push(torques: list[float]) -> None:
            if known[0] is not self.model:
                dofs = self._model.jnt_dofadr[self._joints(body, joints)]
                known[:] = self._model, span(dofs)
            self._data.qfrc_applied[known[1]] = torques

        return push

    def velocity_motors(
        self, body: int, joints: Sequence[int]
    ) -> Callable[[list[float], list[float]], None]:
        """Return a function that takes n velocities to reach, and n torques or forces at most."""
        return self._motor_set(velocity_set(self._joint_names(body, joints)))

    def position_motors(
        self,
        body: int,
        joints: Sequence[int],
        position_gains: Sequence[float] | None = None,
        velocity_gains: Sequence[float] | None = None,
        max_velocities: Sequence[float] | None = None,
    ) -> Callable[[list[float], list[float]], None]:
        """Return the same for positions [rad or m]."""
        gains = position_gains, velocity_gains, max_velocities
        return self._motor_set(position_set(self._joint_names(body, joints), *gains))

    def _motor_set(self, motors: MotorSet) -> Callable[[list[float], list[float]], None]:
        number = len(self._sets)
        known: list[Any] = [None]
        if motors.joints:
            self._sets.append(motors)
            self._add(0)

        def drive(targets: list[float], forces: list[float]) -> None:
            if not motors.joints:
                return
            motors.targets[:] = targets
            if not self._is_compiled:
                motors.forces = list(forces)
                return
            self._motors.set_targets(number)
            if forces is not known[0]:
                known[0] = forces
                if motors.forces != forces:
                    motors.forces = list(forces)
                    self._motors.set_forces(self._model, number)
                    self._is_current = False

        return drive

    def inverse_kinematics(self, body: int, link: int, joints: Sequence[int]) -> InverseKinematics:
        """Return the solver for a link, whose solutions are those of n joints."""
        return _LazySolver(self, body, link, joints)

    def _step(self) -> None:
        self.bring_up_to_date()
        if self.native is not None:
            self.native.step()
            return
        for _ in repeat(None, self.substeps):
            self._substep()

    def _substep(self) -> None:
        data, motors = self.data, self._motors
        if motors.count:
            motors.command(data)
            mujoco.mj_step2(self._model, data)
            motors.read(data)
        else:
            mujoco.mj_step2(self._model, data)
        mujoco.mj_step1(self._model, data)

    # State --------------------------------------------------------------------------------------

    def reset_joints(
        self, body: int, joints: Sequence[int], position: Iterable[float], velocity: Iterable[float]
    ) -> None:
        """Set positions [m or rad] and velocities [m/s or rad/s] of joints, outside of physics."""
        positions, velocities = [float(x) for x in position], [float(x) for x in velocity]

        def change() -> None:
            ids = self._joints(body, joints)
            self._data.qpos[self._model.jnt_qposadr[ids]] = positions
            self._data.qvel[self._model.jnt_dofadr[ids]] = velocities

        self._when_compiled(change)

    def reset_base(
        self,
        body: int,
        position: Iterable[float],
        orientation: Iterable[float],
        velocity: Iterable[float] = (0.0, 0.0, 0.0),
        angular_velocity: Iterable[float] = (0.0, 0.0, 0.0),
    ) -> None:
        """Place a free body, or one that does not move, outside of physics."""
        place, (x, y, z, w) = np.array(list(position), np.float64), map(float, orientation)
        speeds = np.array(list(velocity), np.float64), np.array(list(angular_velocity), np.float64)

        def change() -> None:
            model, data, record = self._model, self._data, self._record(body)
            number, turn, arm = self._body_ids[body, -1], np.array([w, x, y, z]), np.zeros(3)
            mujoco.mju_rotVecQuat(arm, model.body_ipos[number], turn)
            if record.moves == "free":
                joint = model.body_jntadr[number]
                start = model.jnt_qposadr[joint]
                data.qpos[start : start + 3] = place - arm
                data.qpos[start + 3 : start + 7] = turn
                self._set_velocity(number, turn, arm, *speeds)
            elif (mocap := model.body_mocapid[number]) >= 0:
                data.mocap_pos[mocap], data.mocap_quat[mocap] = place - arm, turn

        self._when_compiled(change)

    def set_base_velocity(
        self, body: int, velocity: Sequence[float], angular_velocity: Sequence[float]
    ) -> None:
        """Set the velocity [m/s] and angular velocity [rad/s] of a free body, world frame."""
        data, number = self.data, self._body_ids[body, -1]
        turn, arm = data.xquat[number].copy(), np.zeros(3)
        mujoco.mju_rotVecQuat(arm, self._model.body_ipos[number], turn)
        speeds = np.array(velocity, np.float64), np.array(angular_velocity, np.float64)
        self._set_velocity(number, turn, arm, *speeds)
        self._is_current = False

    def _set_velocity(
        self, number: int, turn: Floats, arm: Floats, velocity: Floats, turning: Floats
    ) -> None:
        """Set that of a free body by the velocity of its centre of mass; arm leads to it."""
        start = self._model.jnt_dofadr[self._model.body_jntadr[number]]
        back, own = np.zeros(4), np.zeros(3)
        mujoco.mju_negQuat(back, turn)
        mujoco.mju_rotVecQuat(own, turning, back)
        self._data.qvel[start : start + 3] = velocity - np.cross(turning, arm)
        self._data.qvel[start + 3 : start + 6] = own

    def add_joint_velocity(self, body: int, joint: int, change: float) -> None:
        """Add to the velocity of a joint [rad/s or m/s]."""
        (number,) = self._joints(body, [joint])
        self._data.qvel[self._model.jnt_dofadr[number]] += change
        self._is_current = False

    def save(self) -> None:
        """Keep the present state as the nominal one, in place of an earlier one."""
        assert self.model is not None
        self._saved = self._whole_state()

    def restore(self) -> None:
        """Go back to the nominal state, whatever happened since; masses are not part of it."""
        assert self.model is not None
        assert self._saved is not None
        self._load_whole_state(self._saved)

    def forget_contacts(self) -> None:
        """Do nothing: MuJoCo looks for contacts anew in each step."""

    def exact_state(self) -> Floats:
        """Return all that the next step depends on, shape (n,)."""
        assert self.model is not None
        return self._whole_state()

    def load_exact_state(self, state: NDArray[Any]) -> None:
        """Continue from what ``exact_state`` returned for a world that was built alike.

        Raises:
            ValueError: If it has another length.
        """
        assert self.model is not None
        own = self._whole_state()
        if state.shape != own.shape:
            raise ValueError(
                f"a state of shape {state.shape} is none of this world, whose have {own.shape}. "
                "Load one of an environment made with the same arguments."
            )
        self._load_whole_state(state)

    def close(self) -> None:
        """Free the world; calling it again does nothing."""
        self.pictures.close()

    # Pictures -----------------------------------------------------------------------------------

    def add_marker(self, shape: Shape, size: Vector3, position: Vector3, colour: Colour) -> int:
        """Add a body that is seen but touches nothing; return it."""
        upright = (0.0, 0.0, 0.0, 1.0)
        return self._add(
            self.bodies.add_shape(shape, size, position, upright, colour, touches=False)
        )

    def place_marker(self, body: int, position: Vector3) -> None:
        """Put a marker elsewhere [m], upright."""

        def change() -> None:
            mocap = self._model.body_mocapid[self._body_ids[body, -1]]
            self._data.mocap_pos[mocap] = position

        self._when_compiled(change)

    def paint(self, body: int, link: int, colour: Colour) -> None:
        """Colour one link; what is wholly transparent is not drawn."""
        self.pictures.paint(self._record(body).link(link), colour)

    def look_of_base(self, body: int) -> tuple[Vector3, Vector3]:
        """Return the edges of the box that a base looks like, and its middle in the world [m]."""
        model, data = self.model, self.data
        number = model.geom(self._record(body).base.seen[0]).id
        x, y, z = (2.0 * model.geom_size[number]).tolist()
        a, b, c = data.geom_xpos[number].tolist()
        return (x, y, z), (a, b, c)

    def picture(self, camera: Camera) -> NDArray[np.uint8]:
        """Return what a camera sees as RGB, shape (height, width, 3)."""
        return self.pictures.take(self.data, camera, shadows=False)

    def shaded_picture(self, camera: Camera, unshaded: Sequence[int] = ()) -> NDArray[np.uint8]:
        """Return the same with shadows."""
        del unshaded
        return self.pictures.take(self.data, camera, shadows=True)

    def colours_of(self, camera: Camera, body: int) -> NDArray[np.uint8]:
        """Return the pixels of one body that a camera sees, shape (n, 3)."""
        return self.pictures.pixels_of(self.data, camera, self._record(body))

    def aim_window(self, camera: Camera) -> None:
        """Point the window at the camera's target."""
        self.pictures.aim_window(self.data, camera)


class _LazySolver(InverseKinematics):
    """Inverse kinematics of a world that may not be complete yet."""

    def __init__(
        self, simulation: MujocoSimulation, body: int, link: int, joints: Sequence[int]
    ) -> None:
        self._simulation, self._place = simulation, (body, link, joints)
        self._model: Any = None

    def _solver(self) -> LinkSolver:
        simulation = self._simulation
        if simulation.model is not self._model:
            self._model = simulation.model
            body, link, joints = self._place
            number = simulation._body_ids[body, link]
            ids = simulation._joints(body, joints)
            present = partial(getattr, simulation, "data")
            self._made = LinkSolver(self._model, present, number, ids)
        return self._made

    def pose(self) -> Pose:
        """Return where the link's frame is now."""
        return self._solver().pose()

    def solve(self, position: Sequence[float], orientation: Quaternion | None) -> list[float]:
        """Return positions of the joints [rad or m], near the present ones."""
        return self._solver().solve(position, orientation)
