"""The cart-pole swing-up: what its reward is worth to whom, and what counts as success."""

import numpy as np
import pytest
from continuing import episode
from gymnasium import spaces

from robots.cartpole import UPRIGHT_STEPS, CartPoleSwingUp, CartPoleSwingUpEnv
from robots.sensors import State
from robots.task import Task

ENVS = ["robots/CartPoleSwingUp-v0"]
NO_PUSH = np.zeros(1)


def state(cart=0.0, angle=0.0, spin=0.0, steps=0.0):
    """Return a state; the angle is 0 when upright [m, rad, rad/s]."""
    memory = {"upright_steps": np.array(steps)}
    return State(np.array([cart, angle]), np.array([0.0, spin]), memory=memory)


def upright(**values):
    """Return the term ``upright`` of a state."""
    return float(CartPoleSwingUp().reward_terms(state(**values), NO_PUSH)["upright"])


def push_by_energy(observation):
    """Return the action of a hand-made controller: pump up the pole's energy, then balance."""
    x, v, sine, cosine, w = observation
    if cosine > 0.9:
        return np.array([x + v + 10.0 * sine + 2.0 * w])
    # In units of the energy at rest upright; the pole is a rod of 1 m hinged at its end.
    energy = w * w / (3 * 9.81) + cosine
    return np.array([(energy - 1.05) * w * cosine - x - 0.5 * v])


def test_episodes_start_with_a_hanging_pole(env):
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        assert observation[3] < -0.998
        assert np.abs(observation[[0, 1, 2, 4]]).max() < 0.051


@pytest.mark.parametrize("seed", range(3))
def test_pumping_energy_brings_the_pole_up_and_is_success(env, seed):
    total, steps, info = episode(env, push_by_energy, seed)
    assert steps == 250
    assert info["is_success"]
    assert total > 170


def test_leaving_the_track_terminates_without_success(env):
    _, steps, info = episode(env, lambda _: 1.0 + NO_PUSH)
    assert steps < 50
    assert info["end_reason"] == "cart_left_track"
    assert info["is_success"] is False


def test_spinning_earns_less_than_a_third_of_standing():
    # At 8 rad/s, which takes the pole just over the top, in even steps of the angle.
    spin = np.mean([upright(angle=a, spin=8.0) for a in np.linspace(0, 2 * np.pi, 100)])
    assert upright() == 1.0
    assert spin < 0.15


def test_way_up_is_rewarded_even_far_from_the_middle():
    heights = [upright(cart=2.0, angle=angle) for angle in (np.pi, 2.0, 1.0, 0.0)]
    assert heights == sorted(heights)
    assert heights[-1] > 0.4


def test_upright_steps_count_up_and_start_again_when_the_pole_leans():
    task = CartPoleSwingUp()
    assert task.remember(state(angle=0.3, steps=7), NO_PUSH)["upright_steps"] == 8
    assert task.remember(state(angle=0.35, steps=7), NO_PUSH)["upright_steps"] == 0


@pytest.mark.parametrize(
    ("steps", "survived", "success"),
    [(UPRIGHT_STEPS, True, True), (UPRIGHT_STEPS - 1, True, False), (UPRIGHT_STEPS, False, False)],
)
def test_success_is_a_whole_upright_second_at_the_end(steps, survived, success):
    task: Task = CartPoleSwingUp()
    assert bool(task.success(state(steps=steps), np.array(survived))) is success


def test_discrete_actions_push_left_not_at_all_and_right():
    env = CartPoleSwingUpEnv(discrete=True)
    assert env.action_space == spaces.Discrete(3)
    changes = []
    for action in range(3):
        before = env.reset(seed=0)[0][1]
        changes.append(env.step(action)[0][1] - before)
    assert changes[0] < -0.1
    assert abs(changes[1]) < 0.05
    assert changes[2] > 0.1
