"""Two racecars: each drives to its goal across the way of the other, and they must not touch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import pi
from typing import Any, ClassVar, Unpack

import numpy as np

from robots.camera import Camera
from robots.driving import RACECAR_FRICTION, RACECAR_JOINTS, driving_world, on_wheels, racecar
from robots.env import BaseRobotEnv, EnvOptions
from robots.frames import (
    Components,
    columns,
    gravity_direction,
    rotate,
    rotate_back,
    sum_of_squares,
)
from robots.rendering import add_cylinder, move, paint
from robots.robot import InitialState
from robots.sensors import Floats, Memory, SensorSpec, State
from robots.teams.team import ParallelTeam, TeamTask, stacked
from robots.world import WorldSpec

N_CARS = 2
ALONG_M = (0.06, 0.29)
"""Middles of the two circles that cover a car, ahead of its rear axle."""
RADIUS_M = 0.19
"""Of each circle."""
TURN_RAD = 0.5
"""How far a goal lies at most to either side of straight across."""
HEADING_RAD = 0.3
"""How far a car looks at most to either side of the middle at the start."""
_TIPPED = -0.5
_COLOURS = ((0.20, 0.47, 0.80, 1.0), (0.95, 0.55, 0.15, 1.0))


class CrossingDrive(TeamTask):
    """Drive across a circle to a goal on its other side, and do not touch the other car.

    Both start on the circle, opposite each other and looking at its middle. ``memory`` holds the
    goals, the length of each way, how much of it is left, the last actions, and who has arrived.

    Attributes:
        tolerance_m: Distance from the goal that counts as success [m].
    """

    reward_weights: ClassVar[Mapping[str, float]] = {
        "progress": 5.0,
        "goal": 5.0,
        "time": 0.01,
        "change": 0.01,
        "crash": 5.0,
    }

    def __init__(
        self, radius_m: tuple[float, float], tolerance_m: float, reward: Mapping[str, float] | None
    ) -> None:
        """Set the least and the greatest radius of the circle, and the tolerance."""
        super().__init__(N_CARS, 15, reward)
        if not 2.0 * tolerance_m < radius_m[0] <= radius_m[1]:
            raise ValueError(
                f"min_radius_m={radius_m[0]}, max_radius_m={radius_m[1]} must rise, from more than "
                f"twice tolerance_m={tolerance_m}. Set for example 1.2, 1.8 and 0.4."
            )
        self.tolerance_m, self._radius_m = tolerance_m, radius_m

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        """Draw the circle, where on it the cars are, their goals and their headings."""
        radius, angle = rng.uniform(*self._radius_m), rng.uniform(-pi, pi)
        angles = angle + pi * np.arange(N_CARS)
        ends = angles + pi + rng.uniform(-TURN_RAD, TURN_RAD, N_CARS)
        headings = angles + pi + rng.uniform(-HEADING_RAD, HEADING_RAD, N_CARS)
        places, goals = (
            radius * np.stack([np.cos(at), np.sin(at)], axis=1) for at in (angles, ends)
        )
        way = np.linalg.norm(goals - places, axis=1) - self.tolerance_m
        memory = {"goals": goals.ravel(), "way": way, "done": np.zeros(N_CARS)}
        rest = np.zeros(RACECAR_JOINTS)
        starts = [
            InitialState(
                rest,
                rest,
                base_position=(*place, 0.01),
                base_orientation=(0.0, 0.0, np.sin(0.5 * heading), np.cos(0.5 * heading)),
            )
            for place, heading in zip(places.tolist(), headings.tolist(), strict=True)
        ]
        return starts[0]._replace(memory=memory, partners=tuple(starts[1:]))

    def remember(self, state: State, action: Floats) -> Memory:
        """Keep goals and ways; renew what is left of them, the actions and who has arrived."""
        kept = {name: state.memory[name] for name in ("goals", "way")}
        left = [self._way_left(state, car) for car in range(N_CARS)]
        return {**kept, "way_left": stacked(left), "action": action, "done": self.flags(state)}

    def sight(self, state: State, robot: int) -> Sequence[Any]:
        """Return where the goal and the other car are, and all motion, in the car's own frame.

        Returns:
            Distance of the goal [m], cosine and sine of its direction; velocity ahead and to the
            left [m/s], turning rate [rad/s]; last action; distance of the other car [m], cosine
            and sine of its direction; its velocity [m/s]; cosine and sine of its heading.
        """
        car, other = of_car(state, robot), of_car(state, 1 - robot)
        orientation = columns(car.base_orientation)
        velocity, turning = car.base_motion
        theirs = rotate_back(orientation, columns(other.base_velocity))
        nose = rotate(columns(other.base_orientation), [1.0, 0.0, 0.0])
        heading = rotate_back(orientation, nose)
        last = columns(state.memory["action"])[2 * robot : 2 * robot + 2]
        return (
            *_polar(orientation, self._to_goal(state, robot)),
            *(velocity[0], velocity[1], turning[2]),
            *last,
            *_polar(orientation, _between(car, other)),
            *(theirs[0], theirs[1], heading[0], heading[1]),
        )

    def robot_terms(self, state: State, action: Components, robot: int) -> dict[str, Any]:
        """Return the terms before weighting, each of shape (...).

        ``progress``: the share of the way made in this step; ``goal``: 1 there; ``time``: -1;
        ``change``: minus the squared change of the action; ``crash``: -1 if the cars touch.
        """
        memory, touch = state.memory, self.touch(state)
        left, way = columns(memory["way_left"])[robot], columns(memory["way"])[robot]
        last = columns(memory["action"])[2 * robot : 2 * robot + 2]
        return {
            "progress": (left - self._way_left(state, robot)) / way,
            "goal": 1.0 * (self._is_near(state, robot) & np.logical_not(touch)),
            "time": -1.0,
            "change": -sum_of_squares([now - then for now, then in zip(action, last, strict=True)]),
            "crash": -1.0 * touch,
        }

    def failures(self, state: State) -> dict[str, Any]:
        """Return whether the cars touch, and whether one tipped over."""
        downs = [
            gravity_direction(columns(of_car(state, car).base_orientation))[2]
            for car in range(N_CARS)
        ]
        return {"crashed": self.touch(state), "tipped_over": np.maximum(*downs) > _TIPPED}

    def done(self, state: State) -> Components:
        """Return whether each car has arrived, now or before."""
        clear, before = np.logical_not(self.touch(state)), columns(state.memory["done"])
        return [(before[car] > 0) | self._is_near(state, car) & clear for car in range(N_CARS)]

    def touch(self, state: State) -> Any:
        """Return whether a circle of one car meets one of the other, shape (...)."""
        first, second = (_circles(of_car(state, car)) for car in range(N_CARS))
        touched: Any = False
        for x, y in first:
            for other_x, other_y in second:
                near = _square(x - other_x, y - other_y) <= 4.0 * RADIUS_M * RADIUS_M
                touched = touched | near
        return touched

    def _to_goal(self, state: State, car: int) -> list[Any]:
        """Return the horizontal vector from a car to its goal, world frame [m]."""
        goals, here = columns(state.memory["goals"]), columns(of_car(state, car).base_position)
        return [goals[2 * car] - here[0], goals[2 * car + 1] - here[1]]

    def _way_left(self, state: State, car: int) -> Any:
        distance = np.sqrt(_square(*self._to_goal(state, car)))
        return np.maximum(distance - self.tolerance_m, 0.0)

    def _is_near(self, state: State, car: int) -> Any:
        return _square(*self._to_goal(state, car)) <= self.tolerance_m * self.tolerance_m


def of_car(state: State, car: int) -> State:
    """Return what the sensors of one car read."""
    return (state, *state.partners)[car]


def _between(car: State, other: State) -> list[Any]:
    (x, y, _), (far_x, far_y, _) = columns(car.base_position), columns(other.base_position)
    return [far_x - x, far_y - y]


def _circles(car: State) -> list[tuple[Any, Any]]:
    x, y, _ = columns(car.base_position)
    ahead_x, ahead_y, _ = rotate(columns(car.base_orientation), [1.0, 0.0, 0.0])
    return [(x + along * ahead_x, y + along * ahead_y) for along in ALONG_M]


def _square(x: Any, y: Any) -> Any:
    return x * x + y * y


def _polar(orientation: Components, vector: list[Any]) -> tuple[Any, Any, Any]:
    """Return the length of a horizontal vector, and its direction in a body's frame."""
    x, y = vector
    ahead, left, _ = rotate_back(orientation, [x, y, 0.0 * x])
    length = np.maximum(np.sqrt(_square(ahead, left)), 1e-9)
    return np.sqrt(_square(x, y)), ahead / length, left / length


class TwoRacecarsEnv(BaseRobotEnv):
    """The world of both cars, at 20 Hz, seen from above."""

    task: CrossingDrive
    camera: ClassVar[Camera] = Camera(
        target=(0.0, 0.0, 0.0), distance_m=5.0, pitch_deg=-60.0, fov_deg=45.0
    )

    def __init__(
        self,
        *,
        min_radius_m: float = 1.2,
        max_radius_m: float = 1.8,
        tolerance_m: float = 0.4,
        max_speed_m_s: float = 2.0,
        friction: float = 0.8,
        reward: Mapping[str, float] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Build the world.

        Args:
            min_radius_m: Least radius of the circle that the cars cross [m].
            max_radius_m: Its greatest radius [m].
            tolerance_m: Distance from the goal that counts as success [m].
            max_speed_m_s: Speed of the rear wheels' rims at action 1 [m/s].
            friction: Coefficient of friction between wheels and ground.
            reward: Weights of ``progress``, ``goal``, ``time``, ``change`` and ``crash`` to change.
            options: See ``BaseRobotEnv``; ``episode_s`` is 10 by default.
        """
        cars = [
            on_wheels(
                replace(racecar(max_speed_m_s), base_position=(2.0 * number, 0.0, 0.0)),
                SensorSpec(base=True),
            )
            for number in range(N_CARS)
        ]
        world: WorldSpec = replace(
            driving_world(friction / RACECAR_FRICTION), partners=tuple(cars[1:])
        )
        task = CrossingDrive((min_radius_m, max_radius_m), tolerance_m, reward)
        super().__init__(cars[0], task, world, **options)

    def current_camera(self) -> Camera:
        """Return the camera, which stays where it is."""
        return replace(self.camera, **self._render_size)

    def build_scenery(self) -> None:
        """Paint each car, and mark its goal in the same colour."""
        self._marks = []
        for robot, colour in zip(self.world.robots, _COLOURS, strict=True):
            paint(self.simulation, robot.body, self.simulation.links(robot.body)["chassis"], colour)
            radius = self.task.tolerance_m
            self._marks.append(add_cylinder(self.simulation, radius, 0.01, (0.0, 0.0, 0.0), colour))

    def update_scenery(self) -> None:
        """Put the marks where the goals are."""
        goals = self.state.memory.get("goals")
        if goals is not None:
            for mark, (x, y) in zip(self._marks, goals.reshape(-1, 2).tolist(), strict=True):
                move(self.simulation, mark, (x, y, 0.005))


class TwoRacecars(ParallelTeam):
    """Two racecars that cross each other's way."""

    def __init__(self, **options: Any) -> None:
        """Build the environment; the options are those of ``TwoRacecarsEnv``."""
        super().__init__(TwoRacecarsEnv(**options))
