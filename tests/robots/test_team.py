"""Several robots in one world."""

from typing import Any

import numpy as np
import pytest
from continuing import KUKA, Wander, actions_for

from rlzoo_plus.testing.robot_contract import check_same_numbers
from robots.env import BaseRobotEnv
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import SensorSpec, State
from robots.vec_env import RobotVecEnv
from robots.world import ObjectSpec, WorldSpec


class BothWander(Wander):
    """A task for an arm and a car."""

    def observation(self, state: State) -> np.ndarray:
        (car,) = state.partners
        parts = [state.joint_position, car.base_position, car.joint_velocity]
        return np.concatenate(parts, axis=-1).astype(np.float32)

    def sample_initial_state(self, rng: np.random.Generator) -> InitialState:
        place = (1.5, rng.uniform(-0.5, 0.5), 0.15)
        car = InitialState(np.zeros(4), np.zeros(4), base_position=place)
        return super().sample_initial_state(rng)._replace(partners=(car,))


def car(**options: Any) -> RobotSpec:
    """Return a Husky beside the arm."""
    return RobotSpec(
        "husky/husky.urdf",
        action_scale=8.0,
        action_mode=ActionMode.VELOCITY,
        joints=".*wheel",
        fixed_base=False,
        max_force=60.0,
        sensors=SensorSpec(base=True),
        **options,
    )


def arm_and_car() -> BaseRobotEnv:
    """Return both on a ground, with a ball between them."""
    arm = RobotSpec(KUKA, action_scale=0.2, action_mode=ActionMode.DELTA_POSITION)
    ball = ObjectSpec("sphere", (0.1, 0.0, 0.0), position=(0.9, 0.0, 0.1))
    world = WorldSpec(ground_friction=0.8, objects=(ball,), partners=(car(),))
    task = BothWander(7)
    return BaseRobotEnv(arm, task, world, episode_s=0.8)


def test_the_first_entries_of_an_action_drive_the_first_robot_and_the_rest_the_other() -> None:
    env = arm_and_car()
    assert env.action_space.shape == (11,)
    env.reset(seed=0)
    arm_before = env.state.joint_position.copy()
    forward = np.concatenate([np.zeros(7), np.ones(4)])
    for _ in range(30):
        env.step(forward)
    (moved,) = env.state.partners
    assert moved.base_position[0] > 1.8
    assert abs(env.state.joint_position - arm_before).max() < 0.1
    assert env.state.object_position.shape == (1, 3)
    env.close()


def test_robots_of_one_world_meet() -> None:
    env = arm_and_car()
    env.reset(seed=0)
    backward = np.concatenate([np.zeros(7), -np.ones(4)])
    for _ in range(39):
        env.step(backward)
    # The car pushes the ball towards the arm.
    assert env.state.object_position[0, 0] < 0.8
    env.close()


def test_partners_are_part_of_the_exact_state() -> None:
    env, other = arm_and_car(), arm_and_car()
    actions = actions_for(env)
    env.reset(seed=1)
    for action in actions[:25]:
        env.step(action)
    other.load_state_dict(env.state_dict())
    env.step(actions[25])
    other.step(actions[25])
    assert env.readings == other.readings
    env.close()
    other.close()


def test_worlds_with_partners_side_by_side_give_the_numbers_of_single_ones() -> None:
    singles = [arm_and_car() for _ in range(2)]
    together = RobotVecEnv([arm_and_car() for _ in singles])
    check_same_numbers(together, singles, 60)
    together.close()
    for env in singles:
        env.close()


@pytest.mark.parametrize(
    ("mode", "message"),
    [(ActionMode.TORQUE, "torques cannot share"), (ActionMode.PD, "pd cannot share a world")],
)
def test_modes_that_cannot_share_a_world_are_refused(mode: ActionMode, message: str) -> None:
    arm = RobotSpec(KUKA, action_scale=1.0, action_mode=mode, position_gain=1.0, velocity_gain=1.0)
    with pytest.raises(ValueError, match=message):
        BaseRobotEnv(arm, Wander(7), WorldSpec(partners=(car(),)))
