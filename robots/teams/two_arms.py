"""Two arms: they push a cube to its goal that is too heavy for either of them."""

from collections.abc import Mapping, Sequence
from math import sqrt
from pathlib import Path
from typing import Any, ClassVar, Unpack

import numpy as np

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import Components, columns, rotate, sum_of_squares
from robots.rendering import add_cylinder, move, paint
from robots.rewards import tolerance
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.teams.team import ParallelTeam, TeamTask
from robots.world import ObjectSpec, WorldSpec

URDF = Path(__file__).parents[1] / "assets" / "planar_arm.urdf"
SIDES = (-1.0, 1.0)
"""On which side of the x axis each arm stands; the second sees all in the mirror of that axis."""
POST_M = (0.22, 0.6)
"""Where the posts of the arms are, ahead and to the side."""
REST = (1.109, -1.656)
"""Shoulder and elbow of the first arm, the finger behind the cube [rad]."""
START_NOISE_RAD = 0.05
EDGE_M, CUBE_KG = 0.24, 3.6
FRICTION = 0.5
"""Between cube and table. It holds the cube with 17.7 N; a shoulder pushes with 11 N."""
START_M, GOAL_M = ((0.24, 0.28), (-0.02, 0.02)), ((0.42, 0.52), (-0.05, 0.05))
"""Least and greatest x, and y, of the cube at the start and of the goal."""
BEHIND_M = (-0.15, 0.08)
"""Where a finger pushes from: from the middle of the cube, back and to the side of its arm."""
_PAINTS = ((0.25, 0.28, 0.33, 1.0), (0.95, 0.55, 0.15, 1.0))


class PushTogether(TeamTask):
    """Push a cube along the table to its goal.

    ``memory`` holds the goal, the way of the cube to where it counts as there, how much of it is
    left, the last actions, and 1 for each arm once it is there.

    Attributes:
        tolerance_m: Distance of the cube from the goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "progress": 5.0,
        "goal": 5.0,
        "near": 0.03,
        "time": 0.01,
        "change": 0.005,
    }

    def __init__(self, tolerance_m: float, reward: Mapping[str, float] | None) -> None:
        """Set the tolerance and the weights of the reward."""
        super().__init__(len(SIDES), 17, reward)
        nearest = GOAL_M[0][0] - START_M[0][1]
        if not 0.0 < tolerance_m < nearest:
            raise ValueError(
                f"tolerance_m={tolerance_m} must be above 0 and below {nearest:.3g}, where a goal "
                "would be reached at the start. Set for example 0.05."
            )
        self.tolerance_m = tolerance_m

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw the joints, where the cube is, and its goal."""
        cube, goal = (np.array([rng.uniform(*axis) for axis in box]) for box in (START_M, GOAL_M))
        still = np.zeros(len(REST))
        arms = [
            InitialState(
                -side * np.array(REST) + rng.uniform(-START_NOISE_RAD, START_NOISE_RAD, 2), still
            )
            for side in SIDES
        ]
        way = np.array(np.linalg.norm(goal - cube) - self.tolerance_m)
        return arms[0]._replace(
            object_position=np.array([[*cube, 0.5 * EDGE_M]]),
            memory={"goal": goal, "way": way, "done": np.zeros(len(SIDES))},
            partners=tuple(arms[1:]),
        )

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the goal and the way; renew what is left of it, the actions and who is done."""
        kept = {name: state.memory[name] for name in ("goal", "way")}
        left, done = self._way_left(state), self.flags(state)
        return {**kept, "way_left": left, "action": action, "done": done}

    def sight(self, state: State, robot: int) -> Sequence[Any]:
        """Return what an arm observes; the second one, in the mirror of the x axis.

        Returns:
            Its joints [rad] and their velocities [rad/s]; its last action; from the cube to its
            finger, to the other finger, and to the goal [m]; velocity of the cube [m/s]; sine and
            cosine of its heading, turning rate [rad/s].
        """
        side, arm = -SIDES[robot], of_arm(state, robot)
        (shoulder, elbow), (shoulder_speed, elbow_speed) = arm.joints
        x, y, _ = columns(state.object_position[..., 0, :])
        speed_x, speed_y, _ = columns(state.object_velocity[..., 0, :])
        turning = columns(state.object_angular_velocity[..., 0, :])[2]
        cosine, sine, _ = rotate(columns(state.object_orientation[..., 0, :]), [1.0, 0.0, 0.0])
        places = [_finger(arm), _finger(of_arm(state, 1 - robot)), columns(state.memory["goal"])]
        ways = [part for place in places for part in (place[0] - x, side * (place[1] - y))]
        return (
            *(side * shoulder, side * elbow, side * shoulder_speed, side * elbow_speed),
            *columns(state.memory["action"])[2 * robot : 2 * robot + 2],
            *ways,
            *(speed_x, side * speed_y, side * sine, cosine, side * turning),
        )

    def robot_terms(self, state: State, action: Components, robot: int) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``progress``: the share of the cube's way made in this step; ``goal``: 1 there; ``near``: 0
        if the finger is where it pushes from, and nearly -1 at 20 cm from there; ``time``: -1;
        ``change``: minus the squared change of the action.
        """
        memory = state.memory
        last = columns(memory["action"])[2 * robot : 2 * robot + 2]
        (x, y, _), finger = columns(state.object_position[..., 0, :]), _finger(of_arm(state, robot))
        off = finger[0] - x - BEHIND_M[0], finger[1] - y - SIDES[robot] * BEHIND_M[1]
        return {
            "progress": (memory["way_left"] - self._way_left(state)) / memory["way"],
            "goal": 1.0 * self._is_there(state),
            "near": tolerance(np.sqrt(sum_of_squares([*off])), margin=0.15) - 1.0,
            "time": -1.0,
            "change": -sum_of_squares([now - then for now, then in zip(action, last, strict=True)]),
        }

    def failures(self, state: State) -> dict[str, Any]:
        """Return whether the cube has passed its goal; no arm can pull it back."""
        x, goal = state.object_position[..., 0, 0], state.memory["goal"][..., 0]
        return {"passed": x > goal + self.tolerance_m}

    def done(self, state: State) -> Components:
        """Return whether the cube is at its goal, for each arm."""
        return [self._is_there(state)] * len(SIDES)

    def _distance(self, state: State) -> Any:
        (x, y, _), goal = columns(state.object_position[..., 0, :]), columns(state.memory["goal"])
        return np.sqrt(sum_of_squares([goal[0] - x, goal[1] - y]))

    def _way_left(self, state: State) -> Any:
        return np.maximum(self._distance(state) - self.tolerance_m, 0.0)

    def _is_there(self, state: State) -> Any:
        return self._distance(state) <= self.tolerance_m


def of_arm(state: State, arm: int) -> State:
    """Return what the sensors of one arm read."""
    return (state, *state.partners)[arm]


def _finger(arm: State) -> Components:
    """Return where the finger of an arm is, world frame [m]."""
    return columns(arm.link_position[..., 0, :])


def planar_arm(side: float, max_speed_rad_s: float) -> RobotSpec:
    """Return the arm that stands on a side of the x axis, its actions those of the mirror."""
    half = sqrt(0.5)
    return RobotSpec(
        urdf=str(URDF),
        action_mode=ActionMode.VELOCITY,
        action_scale=max_speed_rad_s,
        mixing=((-side, 0.0), (0.0, -side)),
        rest_position=(-side * REST[0], -side * REST[1]),
        base_position=(POST_M[0], side * POST_M[1], 0.0),
        base_orientation=(0.0, 0.0, -side * half, half),
        inertia_from_file=True,
        sensors=SensorSpec(links="finger"),
    )


class TwoArmsEnv(BaseRobotEnv):
    """The world of both arms, at 20 Hz."""

    task: PushTogether
    camera: ClassVar[Camera] = Camera(
        target=(0.3, 0.0, 0.1), distance_m=1.7, yaw_deg=-90.0, pitch_deg=-70.0, fov_deg=45.0
    )

    def __init__(
        self,
        *,
        tolerance_m: float = 0.05,
        max_speed_rad_s: float = 1.0,
        cube_kg: float = CUBE_KG,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the world.

        Args:
            tolerance_m: Distance of the cube from the goal that counts as success [m].
            max_speed_rad_s: Speed of a joint at action 1 [rad/s].
            cube_kg: Mass of the cube [kg].
            reward: Weights of ``progress``, ``goal``, ``near``, ``time`` and ``change`` to change.
            options: See ``BaseRobotEnv``; ``episode_s`` is 8 by default.
        """
        options.setdefault("episode_s", 8.0)
        half = 0.5 * EDGE_M
        cube = ObjectSpec(
            size=(half, half, half),
            mass_kg=cube_kg,
            position=(START_M[0][0], 0.0, half),
            friction=FRICTION,
        )
        arms = [planar_arm(side, max_speed_rad_s) for side in SIDES]
        world = WorldSpec(
            time_step_s=1 / 120,
            substeps=6,
            ground_friction=1.0,
            objects=(cube,),
            partners=tuple(arms[1:]),
        )
        super().__init__(arms[0], PushTogether(tolerance_m, reward), world, **options)

    def build_scenery(self) -> None:
        """Paint the arms, and mark the goal by a disc of the size that counts as success."""
        for robot, paint_of in zip(self.world.robots, _PAINTS, strict=True):
            for link in self.simulation.links(robot.body).values():
                paint(self.simulation, robot.body, link, paint_of)
        colour = (0.30, 0.75, 0.45, 1.0)
        self._mark = add_cylinder(
            self.simulation, self.task.tolerance_m, 0.004, (0.0, 0.0, 0.0), colour
        )

    def update_scenery(self) -> None:
        """Put the mark where the goal is."""
        goal = self.state.memory.get("goal")
        if goal is not None:
            move(self.simulation, self._mark, (*goal.tolist(), 0.002))


class TwoArms(ParallelTeam):
    """Two arms that push one cube."""

    def __init__(self, **options: Any) -> None:
        """Build the environment; the options are those of ``TwoArmsEnv``."""
        super().__init__(TwoArmsEnv(**options))
