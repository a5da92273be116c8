"""The half-cheetah, and that its numbers are those of the task it comes from."""

import gymnasium
import numpy as np
import pytest

from robots.half_cheetah import (
    START_HEIGHT_M,
    STEP_S,
    HalfCheetahEnv,
    RunForward,
    _pitch,
)
from robots.sensors import State


@pytest.fixture
def cheetah():
    """Return a half-cheetah at the start of an episode."""
    env = HalfCheetahEnv()
    env.reset(seed=0)
    return env


def walk(number, step):
    """Return actions of several kinds: noise, noise that is held, strong swings."""
    if number % 3 == 2:
        return np.sign(np.sin(0.2 * step + number * np.arange(6))).astype(np.float32)
    seed = step if number % 3 == 0 else step // 15
    rng = np.random.default_rng([number, seed])
    return rng.uniform(-1.0, 1.0, 6).astype(np.float32)


class TestAgainstTheOriginal:
    """Side by side with ``HalfCheetahBulletEnv-v0``."""

    @pytest.fixture
    def original(self):
        """Return the original after one reset, since its first differs from later ones."""
        envs = pytest.importorskip("pybullet_envs_gymnasium.gym_locomotion_envs")
        env = envs.HalfCheetahBulletEnv()
        env.reset(seed=0)
        return env

    def test_observations_and_rewards_are_equal_bit_for_bit(self, cheetah, original):
        for number in range(6):
            first, _ = cheetah.reset(seed=number)
            assert np.array_equal(first, original.reset(seed=number)[0])
            for step in range(200):
                observation, reward, terminated, _, _ = cheetah.step(walk(number, step))
                expected = original.step(walk(number, step))
                assert np.array_equal(observation, expected[0])
                assert reward == expected[1]
                assert terminated == expected[2]

    def test_terms_are_the_parts_of_the_reward(self, cheetah, original):
        cheetah.reset(seed=1)
        original.reset(seed=1)
        for step in range(100):
            terms = cheetah.step(walk(2, step))[4]["reward_terms"]
            original.step(walk(2, step))
            # The fifth, for colliding feet, is always 0.
            assert [*terms.values(), 0.0] == original.rewards

    def test_episode_is_as_long(self, cheetah):
        pytest.importorskip("pybullet_envs_gymnasium")
        registered = gymnasium.spec("HalfCheetahBulletEnv-v0").max_episode_steps
        assert cheetah.max_episode_steps == registered == 1000


def test_mass_is_that_of_the_file(cheetah):
    dynamics = cheetah.simulation.link_dynamics(cheetah.robot.body)
    named = cheetah.simulation.links(cheetah.robot.body)
    # PyBullet knows no settotalmass: masses follow from the shapes, but for the feet.
    assert dynamics[named["bfoot"]].mass_kg == 10.0
    assert dynamics[named["ffoot"]].mass_kg == 10.0
    assert sum(link.mass_kg for link in dynamics.values()) == pytest.approx(38.19, abs=0.01)


def test_torso_starts_at_the_height_that_observations_are_relative_to(cheetah):
    assert cheetah.state.link_position[3, 2] == START_HEIGHT_M
    assert cheetah.task.observation(cheetah.state)[0] == 0.0


def test_without_torques_it_sinks_to_its_shins_and_is_not_alive(cheetah):
    for _ in range(200):
        info = cheetah.step(np.zeros(6, np.float32))[4]
    assert info["reward_terms"]["alive"] == -1.0
    assert info["reward_terms"]["electricity"] == 0.0
    assert abs(info["reward_terms"]["progress"]) < 0.1


def test_progress_of_an_episode_is_the_way_in_steps(cheetah):
    start = cheetah.state.memory["x"]
    total = 0.0
    for step in range(100):
        total += cheetah.step(walk(2, step))[4]["reward_terms"]["progress"]
    assert total * STEP_S == pytest.approx(cheetah.state.memory["x"] - start, abs=1e-9)


def test_pushing_against_the_motion_costs_as_much_as_pushing_with_it():
    state = state_of(joint_velocity=np.full(6, 5.0))
    task = RunForward()
    pushing = task.reward_terms(state, np.full(6, 0.5))["electricity"]
    braking = task.reward_terms(state, np.full(6, -0.5))["electricity"]
    assert pushing == braking == pytest.approx(-0.5 * 0.5 - 0.05 * 0.25)


@pytest.mark.parametrize(("place", "success"), [(19.9, False), (20.1, True)])
def test_success_is_having_run_20_m(place, success):
    state = state_of(memory={"x": place})
    assert bool(RunForward().success(state, np.array(True))) is success


@pytest.mark.parametrize("angle", [-1.57, -1.2, 0.0, 0.3, 1.57])
def test_pitch_is_the_angle_about_the_sideways_axis(angle):
    pitch, _ = _pitch([0.0, np.sin(angle / 2), 0.0, np.cos(angle / 2)])
    assert pitch == pytest.approx(angle, abs=0.005)


def state_of(**changes):
    """Return a cheetah that stands still, with some entries changed."""
    orientation = np.zeros((16, 4))
    orientation[:, 3] = 1.0
    state = State(
        joint_position=np.array([0.0, 0.0, 0.0, 0.0, 0.0, -1.0]),
        joint_velocity=np.zeros(6),
        link_position=np.zeros((16, 3)),
        link_orientation=orientation,
        link_velocity=np.zeros((16, 3)),
        contact=np.zeros(6),
        memory={"x": 0.0, "contact": np.zeros(6), "contact_before": np.zeros(6)},
    )
    return state._replace(**changes)


def test_the_links_of_an_mjcf_are_measured():
    env = gymnasium.make("robots/HalfCheetah-v0").unwrapped
    sim, body = env.simulation, env.robot.body
    sim.forget_contacts()
    boxes = {place.name: place.box for place in sim.link_places(body)}
    assert boxes["torso"][1][2] > boxes["bfoot"][1][2]
    assert sim.lowest_m(body) == pytest.approx(0.06, abs=0.03)
    assert sim.further_joints(body) == []
    env.close()
