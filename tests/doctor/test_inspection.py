"""What an inspection finds doubtful, and that it looks at what training would use."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.doctor.inspection import (
    Inspection,
    as_data,
    inspect_env,
    play_randomly,
    start_and_later,
)
from rlzoo_plus.doctor.robot_facts import robot_facts
from robots import ROBOT_IDS
from robots.env import BaseRobotEnv
from robots.robot import ActionMode, InitialState, RobotSpec
from robots.sensors import SensorSpec
from robots.task import Task, observation_of
from robots.world import WorldSpec


class Stand(Task):
    """Start at a height, and do nothing in particular."""

    reward_weights = {"constant": 1.0, "unused": 0.0}  # noqa: RUF012
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, height_m, rest):
        super().__init__()
        self.height_m, self.rest = height_m, rest

    def sample_initial_state(self, rng):
        return InitialState(self.rest, np.zeros(len(self.rest)), (0.0, 0.0, self.height_m))

    def observation(self, state):
        return observation_of(state.base_position[..., 2])

    def reward_terms(self, state, action):
        return {"constant": 1.0, "unused": 0.0}

    def terminations(self, state):
        return {}


def robot_env(urdf="r2d2.urdf", height_m=0.481, rest=(0.0,) * 8, **spec):
    spec = {"action_mode": ActionMode.VELOCITY, "action_scale": 1.0, **spec}
    return BaseRobotEnv(
        RobotSpec(urdf, fixed_base=False, sensors=SensorSpec(base=True), **spec),
        Stand(height_m, rest),
        WorldSpec(ground_friction=1.0),
        episode_s=0.5,
    )


@pytest.fixture
def facts():
    """Return a function: arguments of a robot to what an inspection tells of it."""

    def look(**options):
        env = robot_env(**options)
        try:
            return robot_facts(env)
        finally:
            env.close()

    return look


def test_a_sound_robot_has_no_notes(facts):
    assert facts().notes == []


def test_masses_and_joints_are_those_of_the_simulation(facts):
    found = facts(actuated=".*wheel_joint", max_force=2.0, max_velocity=9.0)
    assert sum(found.masses_kg.values()) == pytest.approx(65.25)
    assert found.masses_kg["head"] == 10.0
    uses = {joint.name: joint.use for joint in found.joints}
    assert uses["head_swivel"] == "read"
    assert uses["left_back_wheel_joint"] == "driven"
    forces = {joint.name: joint.max_force for joint in found.joints}
    assert (forces["left_back_wheel_joint"], forces["head_swivel"]) == (2.0, 1000.0)
    velocities = {joint.name: joint.max_velocity for joint in found.joints}
    assert (velocities["left_back_wheel_joint"], velocities["head_swivel"]) == (9.0, None)


@pytest.mark.parametrize(
    ("height_m", "words"),
    [(0.40, "deep in the ground"), (0.9, "above the ground and falls first")],
)
def test_a_start_off_the_ground_is_noted(facts, height_m, words):
    found = facts(height_m=height_m)
    assert found.clearance_m == pytest.approx(height_m - 0.471, abs=0.002)
    assert words in "".join(found.notes)


def test_motors_without_strength_are_noted(facts):
    found = facts(urdf="husky/husky.urdf", height_m=0.2, rest=(0.0,) * 4)
    assert "front_left_wheel" in next(note for note in found.notes if "max_force" in note)


def test_masses_that_pybullet_made_up_are_noted(facts):
    found = facts(urdf="husky/husky.urdf", height_m=0.2, rest=(0.0,) * 4, max_force=1.0)
    assert "imu_link" in next(note for note in found.notes if "<inertial>" in note)


def test_a_rest_position_outside_of_the_limits_is_noted(facts):
    rest = (0.0,) * 5 + (0.9, 0.0, 0.0)
    assert "left_gripper_joint" in "".join(facts(rest_position=rest, rest=rest).notes)


def test_a_term_that_never_changes_is_noted_unless_it_is_not_weighed():
    env = robot_env()
    play = play_randomly(env, 0.05)
    notes = Inspection("x", "", "", robot_facts(env), play).notes()
    env.close()
    assert [note for note in notes if "no reward term changed in random play (constant 1)" in note]
    assert not [note for note in notes if "unused" in note]


@pytest.mark.parametrize("env_id", ROBOT_IDS)
def test_no_fault_is_found_in_a_shipped_robot(env_id):
    env = gymnasium.make(env_id, disable_env_checker=True)
    facts = robot_facts(env.unwrapped)
    space = str(env.observation_space)
    notes = Inspection("x", space, "", facts, play_randomly(env, 0.1)).notes()
    env.close()
    assert notes == []
    assert "driven" in {joint.use for joint in facts.joints}


def test_the_fingers_of_a_gripper_are_driven_and_an_arm_has_no_scale_of_its_own():
    env = gymnasium.make("robots/FrankaLift-v0", disable_env_checker=True)
    facts = robot_facts(env.unwrapped)
    env.close()
    rows = {row.name: row for row in facts.joints}
    assert facts.action_mode == "end_effector"
    assert rows["panda_finger_joint1"].use == rows["panda_joint1"].use == "driven"
    assert (rows["panda_joint1"].scale, rows["panda_finger_joint1"].scale) == (None, 0.02)


class Odd(gymnasium.Env):
    """Its observations leave their space, and it ends after three steps."""

    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)
    render_mode = "rgb_array"

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.full(1, 2, np.float32), 1.0, self.steps == 3, False, {}

    def render(self):
        return np.full((20, 20, 3), self.steps, np.uint8)


def test_observations_outside_of_their_space_are_noted():
    play = play_randomly(Odd(), 0.01)
    assert play.outside == play.steps
    assert "outside of the observation space" in Inspection("x", "", "", None, play).notes()[0]


def test_episodes_are_counted_with_their_returns_and_ends():
    play = play_randomly(Odd(), 0.01)
    assert set(play.ends) == {"terminated"}
    assert set(play.returns) == set(play.lengths) == {3.0}


def test_the_second_picture_is_taken_where_the_episode_ends():
    (_, first), (words, second) = start_and_later(Odd())
    assert words == "after 3 random actions, where the episode ended"
    assert (first.max(), second.max()) == (0, 3)


def test_random_play_of_a_seed_is_the_same_each_time():
    first, second = (robot_env(), robot_env())
    pictures = [play_randomly(env, 1e-9) for env in (first, second)]
    assert pictures[0].rewards == pictures[1].rewards
    first.close()
    second.close()


def test_wrappers_are_part_of_what_is_inspected():
    spec = EnvConfig(
        id="robots/CartPoleBalance-v0", packages=["robots"], kwargs={},
        wrappers=[{"mask_observation": {"hidden": [1, 4]}}], frame_stack=1, time_limit=7,
        warmup_resets=0, max_return=None, solved_return=None,
    )  # fmt: skip
    inspection = inspect_env(spec, 0.2)
    assert inspection.observation_space.startswith("Box([-inf   0.")
    assert max(inspection.play.lengths) == 7
    assert as_data(inspection)["random_play"]["lengths"]["highest"] == 7
