"""Driving to a point on a plane: the task of the wheeled robots, the Husky and the racecar."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.camera import Camera
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import gravity_direction, rotate_back, sum_of_squares
from robots.rendering import add_cylinder, move
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.task import Bools, Task, columns, observation_of
from robots.world import WorldSpec

# Leaning by more than 60 degrees.
_TIPPED = -0.5
_DISC, _POST = (0.30, 0.75, 0.45, 1.0), (0.13, 0.50, 0.30, 1.0)
_POST_M = 0.6


class DriveToGoal(Task):
    """Drive to a point that lies in any direction, forwards or backwards.

    The robot starts at the origin, heading along +x. ``memory`` holds the goal, the length of the
    way to where it counts as reached, how much of that is left, and the last action.

    Attributes:
        tolerance_m: Distance from the goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "progress": 5.0,
        "goal": 5.0,
        "time": 0.01,
        "change": 0.01,
    }
    observation_space = spaces.Box(
        np.array([0, -1, -1, -np.inf, -np.inf, -np.inf, -1, -1], np.float32),
        np.array([np.inf, 1, 1, np.inf, np.inf, np.inf, 1, 1], np.float32),
    )

    def __init__(
        self,
        n_joints: int,
        min_goal_m: float = 1.5,
        max_goal_m: float = 4.0,
        tolerance_m: float = 0.35,
        reward: Mapping[str, float] | None = None,
    ) -> None:
        """Set the distances.

        Args:
            n_joints: Joints of the robot.
            min_goal_m: Least distance of a goal from the start [m].
            max_goal_m: Greatest distance of a goal from the start [m].
            tolerance_m: Distance from the goal that counts as success [m].
            reward: Weights of the terms to change.

        Raises:
            ValueError: If the distances are not valid.
        """
        super().__init__(reward)
        if not 0 < tolerance_m < min_goal_m <= max_goal_m:
            raise ValueError(
                f"tolerance_m={tolerance_m}, min_goal_m={min_goal_m}, max_goal_m={max_goal_m} "
                "must be positive and rise, or a goal would be reached at the start. "
                "Set for example 0.35, 1.5 and 4."
            )
        self.tolerance_m = tolerance_m
        self._rest = np.zeros(n_joints)
        self._goal_range_m = (min_goal_m, max_goal_m)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw the distance and the direction of the goal, each uniform."""
        distance = rng.uniform(*self._goal_range_m)
        direction = rng.uniform(-np.pi, np.pi)
        goal = distance * np.array([np.cos(direction), np.sin(direction)])
        memory = {"goal": goal, "way": np.array(distance - self.tolerance_m)}
        return InitialState(self._rest, self._rest, memory=memory)

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep the goal and the way, and renew the way that is left and the action."""
        kept = {name: state.memory[name] for name in ("goal", "way")}
        return {**kept, "way_left": self._way_left(_distance(state)), "action": action}

    def observation_names(self, joints: Sequence[str]) -> tuple[str, ...]:
        """Return the names of the entries of ``observation``."""
        del joints
        goal = ("goal distance", "cos goal", "sin goal")
        return (
            *goal,
            "speed ahead",
            "speed left",
            "turning rate",
            "last action 1",
            "last action 2",
        )

    def observation(self, state: State) -> NDArray[np.float32]:
        """Return where the goal is, the motion, and the last action, in the robot's frame.

        Returns:
            Distance of the goal [m], cosine and sine of its direction (0 ahead, positive to the
            left), velocity ahead and to the left [m/s], turning rate [rad/s] and the last action,
            shape (..., 8).
        """
        orientation = columns(state.base_orientation)
        x, y = _to_goal(state)
        ahead, left, _ = rotate_back(orientation, [x, y, 0.0 * x])
        length = np.maximum(np.sqrt(ahead * ahead + left * left), 1e-9)
        velocity = rotate_back(orientation, columns(state.base_velocity))
        turning = rotate_back(orientation, columns(state.base_angular_velocity))
        return observation_of(
            np.sqrt(x * x + y * y),
            ahead / length,
            left / length,
            velocity[0],
            velocity[1],
            turning[2],
            *columns(state.memory["action"]),
        )

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``progress``: the share of the way made in this step, which adds up to 1 at the goal;
        ``goal``: 1 there; ``time``: -1; ``change``: minus the squared change of the action.
        """
        distance = _distance(state)
        return {
            "progress": (state.memory["way_left"] - self._way_left(distance)) / state.memory["way"],
            "goal": 1.0 * (distance <= self.tolerance_m),
            "time": -1.0,
            "change": -sum_of_squares(columns(action - state.memory["action"])),
        }

    def terminations(self, state: State) -> dict[str, Any]:
        """Return whether the goal is reached and whether the robot tipped over, each (...)."""
        down = gravity_direction(columns(state.base_orientation))[2]
        return {"goal_reached": _distance(state) <= self.tolerance_m, "tipped_over": down > _TIPPED}

    def success(self, state: State, survived: Bools) -> Bools:
        """Return whether the goal is reached."""
        del survived
        near: Bools = _distance(state) <= self.tolerance_m
        return near

    def _way_left(self, distance: Any) -> Any:
        return np.maximum(distance - self.tolerance_m, 0.0)


class DrivingOptions(EnvOptions, total=False):
    """Options of every wheeled robot; see ``DrivingEnv``."""

    min_goal_m: float
    max_goal_m: float
    tolerance_m: float
    reward: Mapping[str, float] | None


class DrivingEnv(BaseRobotEnv):
    """A wheeled robot on a plane, with its goal marked.

    The camera looks from behind the robot towards the goal, so that both are seen.
    """

    task: DriveToGoal
    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.1), distance_m=4.0, pitch_deg=-32.0, fov_deg=45.0
    )

    def __init__(
        self,
        robot: RobotSpec,
        n_joints: int,
        ground_friction: float,
        *,
        min_goal_m: float = 1.5,
        max_goal_m: float = 4.0,
        tolerance_m: float = 0.35,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the environment at 20 Hz.

        Args:
            robot: The robot to load.
            n_joints: Number of its joints.
            ground_friction: Coefficient of friction of the ground; a contact multiplies it by
                that of the wheels.
            min_goal_m: Least distance of a goal from the start [m].
            max_goal_m: Greatest distance of a goal from the start [m].
            tolerance_m: Distance from the goal that counts as success [m].
            reward: Weights of the terms ``progress``, ``goal``, ``time`` and ``change`` to change.
            options: See ``BaseRobotEnv``; ``episode_s`` is 15 by default.
        """
        options.setdefault("episode_s", 15.0)
        task = DriveToGoal(n_joints, min_goal_m, max_goal_m, tolerance_m, reward)
        world = WorldSpec(
            time_step_s=1 / 120,
            substeps=6,
            solver_iterations=20,
            ground_friction=ground_friction,
            # With it the Husky's turning rate would vary fivefold with its heading.
            cone_friction=False,
        )
        # Just clear of the ground.
        robot = replace(
            robot,
            action_mode=ActionMode.VELOCITY,
            base_position=(0.0, 0.0, 0.01),
            fixed_base=False,
            inertia_from_file=True,
            sensors=SensorSpec(base=True),
        )
        super().__init__(robot, task, world, **options)

    def current_camera(self) -> Camera:
        """Return the camera, turned towards the goal and aimed at a point on the way to it."""
        camera = super().current_camera()
        goal = self.state.memory.get("goal")
        if goal is None:
            return camera
        x, y = (goal - self.state.base_position[:2]).tolist()
        # At most 1 m, so that a robot that strays far from its goal stays in the image.
        share = min(0.3, 1.0 / max(float(np.hypot(x, y)), 1e-9))
        across, along, height = camera.target
        target = (across + share * x, along + share * y, height)
        return replace(camera, target=target, yaw_deg=float(np.degrees(np.arctan2(y, x))) - 90.0)

    def build_scenery(self) -> None:
        """Add the mark of the goal: a disc of the size that counts as success, and a post."""
        disc = add_cylinder(self.simulation, self.task.tolerance_m, 0.01, (0.0, 0.0, 0.0), _DISC)
        post = add_cylinder(self.simulation, 0.03, _POST_M, (0.0, 0.0, 0.0), _POST)
        self._marks = {disc: 0.005, post: _POST_M / 2}

    def update_scenery(self) -> None:
        """Put the mark where the goal is."""
        goal = self.state.memory.get("goal")
        if goal is not None:
            for mark, height in self._marks.items():
                move(self.simulation, mark, (*goal.tolist(), height))


class HuskyDriveEnv(DrivingEnv):
    """The Husky, a heavy robot on four wheels that turns by the different speeds of its sides.

    The first entry of the action drives ahead, the second turns to the left.
    """

    def __init__(
        self,
        *,
        max_speed_m_s: float = 1.0,
        max_torque_n_m: float = 60.0,
        friction: float = 0.8,
        **options: Unpack[DrivingOptions],
    ) -> None:
        """Build the environment.

        Args:
            max_speed_m_s: Speed of the wheels' rims at action 1 [m/s].
            max_torque_n_m: Strength of the motor of each wheel [N m].
            friction: Coefficient of friction between wheels and ground.
            options: See ``DrivingEnv``.
        """
        robot = RobotSpec(
            urdf="husky/husky.urdf",
            action_scale=max_speed_m_s / 0.17775,  # The radius of the wheels.
            max_force=max_torque_n_m,
            # Front left, front right, rear left, rear right.
            mixing=((1.0, -1.0), (1.0, 1.0), (1.0, -1.0), (1.0, 1.0)),
            massless_links="base_footprint|imu_link|top_plate_link|user_rail_link|.*_bumper_link",
        )
        # The URDF gives the wheels a friction of 1.
        super().__init__(robot, 4, friction, **options)


class RacecarDriveEnv(DrivingEnv):
    """The racecar, a model car that its rear wheels drive and its front wheels steer.

    The first entry of the action drives ahead or back, the second steers to the left. It cannot
    turn on the spot.
    """

    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.05), distance_m=2.8, pitch_deg=-32.0, fov_deg=45.0
    )

    def __init__(
        self,
        *,
        max_speed_m_s: float = 2.0,
        max_torque_n_m: float = 0.5,
        max_steering_rad: float = 0.6,
        friction: float = 0.8,
        **options: Unpack[DrivingOptions],
    ) -> None:
        """Build the environment.

        Args:
            max_speed_m_s: Speed of the rear wheels' rims at action 1 [m/s].
            max_torque_n_m: Strength of the motor of each rear wheel [N m].
            max_steering_rad: Angle of both front wheels at action 1 [rad].
            friction: Coefficient of friction between wheels and ground.
            options: See ``DrivingEnv``; ``tolerance_m`` is 0.4 by default.
        """
        options.setdefault("tolerance_m", 0.4)
        speed, steering = max_speed_m_s / 0.05, ".*_steering_hinge_joint"
        robot = RobotSpec(
            urdf="racecar/racecar.urdf",
            actuated=f".*_rear_wheel_joint|{steering}",
            positioned=steering,
            # Left and right rear wheel, left and right steering hinge.
            action_scale=(speed, speed, max_steering_rad, max_steering_rad),
            mixing=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),
            max_force=(max_torque_n_m, max_torque_n_m, 10.0, 10.0),
        )
        # Bullet gives the wheels a friction of 0.5.
        super().__init__(robot, 6, friction / 0.5, **options)


def _to_goal(state: State) -> list[Any]:
    """Return the horizontal vector from the robot to the goal, world frame [m]."""
    goal, here = columns(state.memory["goal"]), columns(state.base_position)
    return [goal[0] - here[0], goal[1] - here[1]]


def _distance(state: State) -> Any:
    """Return the horizontal distance of the goal [m]."""
    x, y = _to_goal(state)
    return np.sqrt(x * x + y * y)
