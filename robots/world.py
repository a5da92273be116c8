"""A world: a simulation with one robot or several, a ground, objects and sensors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from robots.camera import Colour, Quaternion, Vector3
from robots.drives import JoinedDrive
from robots.engines import make_simulation
from robots.robot import ActionMode, InitialState, Robot, RobotSpec
from robots.sensors import Floats, Sensors, State
from robots.simulation import Physics, Pose, Shape
from robots.terrain import Terrain, TerrainSpec

Rows = NDArray[np.float64]

_APART_M = 1000.0


@dataclass(frozen=True)
class ObjectSpec:
    """A free body that is neither robot nor ground, such as a cube to push."""

    shape: Shape = "box"
    """Its form."""
    size: Vector3 = (0.02, 0.02, 0.02)
    """Half the edges of a box; radius, unused, unused of a sphere; radius, length, unused [m]."""
    mass_kg: float = 1.0
    """Mass; 0 makes an obstacle that cannot move."""
    position: Vector3 = (0.0, 0.0, 0.02)
    """World position of the centre of mass [m]."""
    orientation: Quaternion = (0.0, 0.0, 0.0, 1.0)
    """Quaternion (x, y, z, w)."""
    friction: float = 0.5
    """Coefficient of lateral friction."""
    colour: Colour = (0.20, 0.47, 0.80, 1.0)
    """How it is painted."""


@dataclass(frozen=True)
class WorldSpec(Physics):
    """What surrounds a robot, and how time passes there; all fields by keyword."""

    ground_friction: float | None = None
    """Coefficient of friction of a ground at height 0; None: there is no ground."""
    ground_restitution: float | None = None
    """Share of its speed with which a body bounces off the ground; the file's if None."""
    ground_file: str = "plane.urdf"
    """URDF of the ground, or SDF, also searched for in ``pybullet_data``."""
    terrain: TerrainSpec | None = None
    """Uneven ground in place of ``ground_file``."""
    objects: tuple[ObjectSpec, ...] = field(default=())
    """Free bodies, read by the sensors as objects if they have a mass."""
    partners: tuple[RobotSpec, ...] = field(default=())
    """Further robots: the last entries of the action drive them, ``State.partners`` has what
    their sensors read."""


class World:
    """One robot in its surroundings.

    Attributes:
        spec: What it was made of, its first robot excluded.
        simulation: Its physics.
        robot: The robot.
        robots: The same, and its partners.
        ground: Id of the ground's body, or None.
        objects: Ids of the objects that are read.
        obstacles: Ids of those that have no mass.
        terrain: The uneven ground, or None.
        sensors: What reads the robot and the objects.
    """

    def __init__(
        self,
        spec: WorldSpec,
        robot: RobotSpec,
        *,
        engine: str | None = None,
        gui: bool = False,
        renderer: str = "tiny",
        draws: bool = True,
    ) -> None:
        """Build the world; ``save`` what an episode starts from when it is complete.

        Args:
            spec: Surroundings and time.
            robot: The robot to load.
            engine: Name of the physics engine; see ``robots.engines.make_simulation``.
            gui: Open a window.
            renderer: Renderer of images, "tiny" or "egl".
            draws: Whether images are drawn; see ``Simulation``.

        Raises:
            ValueError: If the engine or the renderer is unknown, or the robot is not valid.
            EngineError: If the engine is not installed.
            RendererError: If EGL is requested where there is none.
        """
        self.spec, self._robot_spec = spec, robot
        torques = robot.action_mode == ActionMode.TORQUE
        self.simulation = make_simulation(
            engine, spec, hold_torques=torques, gui=gui, draws=draws, renderer=renderer
        )
        try:
            self.terrain: Terrain | None = None
            self.ground = self._lay_ground(spec)
            self.robots = [Robot(self.simulation, one) for one in (robot, *spec.partners)]
            bodies = [(self._add(item), item) for item in spec.objects]
            self.objects = [body for body, item in bodies if item.mass_kg > 0]
            self.obstacles = [body for body, item in bodies if item.mass_kg == 0]
            self.robot = self.robots[0]
            self.sensors = self._make_sensors((robot, *spec.partners))
            if spec.partners:
                self.robot.drive = TeamDrive([one.drive for one in self.robots])
        except Exception:
            self.simulation.close()
            raise
        self._camera = robot.sensors.camera
        self._poses: dict[int, Pose] = {}

    def _make_sensors(self, specs: tuple[RobotSpec, ...]) -> Sensors:
        """Return the sensors of the first robot, which read the objects and the partners too."""
        if len({one.action_mode == ActionMode.TORQUE for one in specs}) > 1:
            raise ValueError(
                f"action_mode={[str(one.action_mode) for one in specs]}: torques cannot share a "
                "world with other modes, since they are held over a step and motors are not. "
                "Choose torque for all robots or for none."
            )
        parts = [(one.body, one.joints) for one in self.robots]
        others = [
            Sensors(self.simulation, *part, [], spec.sensors)
            for part, spec in zip(parts[1:], specs[1:], strict=True)
        ]
        return Sensors(self.simulation, *parts[0], self.objects, specs[0].sensors, others)

    def copy(self) -> "World":
        """Return a world made alike, as it was before anything happened; for physics alone."""
        return World(self.spec, self._robot_spec, engine=self.simulation.engine, draws=False)

    def save(self) -> None:
        """Make the present poses those in which episodes start that draw no others.

        The state is saved with all free bodies far from each other, and a look for contacts at
        the start of an episode finds none. Without it those of the episode before would stay
        where bodies are placed on each other again, and the first steps would depend on it.
        """
        simulation = self.simulation
        robots = [one.body for one in self.robots if one.free_base]
        bodies = [*self.objects, *self.obstacles, *robots]
        self._poses = {body: simulation.pose_reader(body)() for body in bodies}
        for number, (body, (_, orientation)) in enumerate(self._poses.items(), start=1):
            simulation.reset_base(body, (0.0, 0.0, _APART_M * number), orientation)
        simulation.save()

    def start(self, initial: InitialState) -> list[float]:
        """Restore the nominal state, place robot and objects, and read the sensors."""
        self.simulation.restore()
        if self._poses or self.ground is not None:
            self.simulation.forget_contacts()
        for index, (body, pose) in enumerate(self._poses.items()):
            position, orientation = pose
            obstacle = index - len(self.objects)
            if obstacle < 0:
                if initial.object_position is not None:
                    position = initial.object_position[index]
                if initial.object_orientation is not None:
                    orientation = initial.object_orientation[index]
            elif obstacle < len(self.obstacles) and initial.obstacle_position is not None:
                position = initial.obstacle_position[obstacle]
            self.simulation.reset_base(body, position, orientation)
        if initial.ground is not None and self.terrain is not None:
            self.simulation.reset_base(self.terrain.body, *initial.ground)
        starts = (initial, *initial.partners)
        for index, robot in enumerate(self.robots):
            robot.reset(starts[index] if index < len(starts) else robot.at_rest)
        return self.sensors.read_at_start()

    def step(self, targets: list[float]) -> list[float]:
        """Drive the robot for one step and read the sensors.

        Args:
            targets: One row of ``Drive.targets``.
        """
        self.robot.drive.advance(targets)
        return self.sensors.read()

    def image(self) -> NDArray[np.uint8] | None:
        """Return what the robot's camera sees, shape (height, width, 3); None without one."""
        return None if self._camera is None else self.simulation.picture(self._camera)

    def _lay_ground(self, spec: WorldSpec) -> int | None:
        if spec.ground_friction is None:
            return None
        if spec.terrain is not None:
            self.terrain = Terrain(self.simulation, spec.terrain)
            ground = self.terrain.body
        else:
            ground = self.simulation.load_ground(spec.ground_file)
        self.simulation.set_friction(ground, -1, spec.ground_friction, spec.ground_restitution)
        return ground

    def _add(self, item: ObjectSpec) -> int:
        return self.simulation.add_object(
            item.shape,
            item.size,
            mass_kg=item.mass_kg,
            position=item.position,
            orientation=item.orientation,
            friction=item.friction,
            colour=item.colour,
        )


def step_worlds(worlds: Sequence[World], targets: Floats) -> Rows:
    """Step many worlds in turn and read their sensors; an engine may do it in one call.

    Args:
        worlds: n worlds.
        targets: One row for each, shape (n, n_targets).

    Returns:
        One row of sensor readings for each, shape (n, n_numbers).
    """
    rows = [world.step(row) for world, row in zip(worlds, targets.tolist(), strict=True)]
    return np.array(rows, np.float64)


def in_turn(worlds: Sequence[World]) -> Callable[[Floats], Rows]:
    """Return ``step_worlds`` for some worlds."""
    return partial(step_worlds, worlds)


class TeamDrive(JoinedDrive):
    """Distributes an action among robots: its first entries drive the first one, and so on."""

    def states(self, state: State) -> Sequence[State]:
        """Return the state of each robot."""
        return (state, *state.partners)
