"""The wheeled robots that drive to a point on a plane: the Husky and the racecar."""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Unpack

import numpy as np

from robots.avoiding import DriveBetweenPosts, Footprint, posts
from robots.camera import Camera
from robots.drive_to_goal import DriveToGoal
from robots.env import BaseRobotEnv, EnvOptions
from robots.rendering import add_cylinder, move
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.world import WorldSpec

_DISC, _POST = (0.30, 0.75, 0.45, 1.0), (0.13, 0.50, 0.30, 1.0)
_POST_M = 0.6

RACECAR_JOINTS = 6
RACECAR_FRICTION = 0.5
"""Of its wheels, as Bullet gives it."""
SERVO_TORQUE_N_M, SERVO_SPEED_RAD_S = 0.88, 6.2
"""Of the racecar's steering servo, Traxxas 2075: 125 oz in, and 60 degrees in 0.17 s."""


def driving_world(ground_friction: float) -> WorldSpec:
    """Return a plane, at 20 Hz; a contact multiplies its friction by that of the wheels."""
    return WorldSpec(
        time_step_s=1 / 120,
        substeps=6,
        solver_iterations=20,
        ground_friction=ground_friction,
        # With it the Husky's turning rate would vary fivefold with its heading.
        cone_friction=False,
    )


def on_wheels(robot: RobotSpec, sensors: SensorSpec) -> RobotSpec:
    """Return a wheeled robot that velocities drive, just clear of the ground."""
    return replace(
        robot,
        action_mode=ActionMode.VELOCITY,
        base_position=(*robot.base_position[:2], 0.01),
        fixed_base=False,
        inertia_from_file=True,
        sensors=sensors,
    )


def racecar(
    max_speed_m_s: float = 2.0, max_torque_n_m: float = 0.5, max_steering_rad: float = 0.6
) -> RobotSpec:
    """Return the racecar; the arguments are those of ``RacecarDriveEnv``."""
    speed, steering = max_speed_m_s / 0.05, ".*_steering_hinge_joint"
    # One servo turns both wheels.
    torque, turn = 0.5 * SERVO_TORQUE_N_M, SERVO_SPEED_RAD_S
    return RobotSpec(
        urdf="racecar/racecar.urdf",
        actuated=f".*_rear_wheel_joint|{steering}",
        positioned=steering,
        # Left and right rear wheel, left and right steering hinge.
        action_scale=(speed, speed, max_steering_rad, max_steering_rad),
        mixing=((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),
        max_force=(max_torque_n_m, max_torque_n_m, torque, torque),
        max_velocity=(speed, speed, turn, turn),
    )


class DrivingOptions(EnvOptions, total=False):
    """Options of every wheeled robot; see ``DrivingEnv``."""

    min_goal_m: float
    max_goal_m: float
    tolerance_m: float
    obstacles: int
    reward: Mapping[str, float] | None


class DrivingEnv(BaseRobotEnv):
    """A wheeled robot on a plane, with its goal marked.

    The camera looks from behind the robot towards the goal, so that both are seen.
    """

    task: DriveToGoal
    footprint: ClassVar[Footprint]
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
        obstacles: int = 0,
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
            obstacles: Posts that stand on and beside the way to the goal; with any, a range sensor
                sees them, and to touch one ends the episode.
            reward: Weights of the terms ``progress``, ``goal``, ``time``, ``change`` and, with
                obstacles, ``touch`` to change.
            options: See ``BaseRobotEnv``; ``episode_s`` is 15 by default.
        """
        options.setdefault("episode_s", 15.0)
        distances, sees = (min_goal_m, max_goal_m, tolerance_m), SensorSpec(base=True)
        if obstacles:
            task: DriveToGoal = DriveBetweenPosts(
                obstacles, self.footprint, n_joints, *distances, reward
            )
            sees = replace(sees, ranges=self.footprint.range_sensor)
        else:
            task = DriveToGoal(n_joints, *distances, reward)
        world = replace(driving_world(ground_friction), objects=posts(obstacles))
        super().__init__(on_wheels(robot, sees), task, world, **options)

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

    footprint: ClassVar[Footprint] = Footprint(0.539, 0.539, 0.346, 0.45)

    def __init__(
        self,
        *,
        max_speed_m_s: float = 1.0,
        max_torque_n_m: float = 30.0,
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

    footprint: ClassVar[Footprint] = Footprint(0.406, 0.052, 0.147, 0.25)

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
        robot = racecar(max_speed_m_s, max_torque_n_m, max_steering_rad)
        super().__init__(robot, RACECAR_JOINTS, friction / RACECAR_FRICTION, **options)
