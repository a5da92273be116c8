"""The cart-pole swing-up: what its reward is worth to whom, and what counts as success."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from robots.cartpole import UPRIGHT_STEPS, CartPoleSwingUp
from robots.sensors import State
from robots.task import Task

ENV_ID = "robots/CartPoleSwingUp-v0"
NO_PUSH = np.zeros(1)


@pytest.fixture
def env() -> Iterator[gymnasium.Env]:
    """Return the environment, closed after the test."""
    env = gymnasium.make(ENV_ID)
    yield env
    env.close()


def state(cart: float = 0.0, angle: float = 0.0, spin: float = 0.0, steps: float = 0.0) -> State:
    """Return a state; the angle is 0 when upright [m, rad, rad/s]."""
    memory = {"upright_steps": np.array(steps)}
    return State(np.array([cart, angle]), np.array([0.0, spin]), memory=memory)


def upright(**values: float) -> float:
    """Return the term ``upright`` of a state."""
    return float(CartPoleSwingUp().reward_terms(state(**values), NO_PUSH)["upright"])


def push_by_energy(observation: np.ndarray) -> float:
    """Return the action of a hand-made controller: pump up the pole's energy, then balance."""
    x, v, sine, cosine, w = observation
    if cosine > 0.9:
        return float(x + v + 10.0 * sine + 2.0 * w)
    # In units of the energy at rest upright; the pole is a rod of 1 m hinged at its end.
    energy = w * w / (3 * 9.81) + cosine
    return float((energy - 1.05) * w * cosine - x - 0.5 * v)


def play(env: gymnasium.Env, push: Any, seed: int = 0) -> tuple[float, int, dict]:
    """Return return, length and last info of an episode."""
    observation, _ = env.reset(seed=seed)
    total, steps, done, info = 0.0, 0, False, {}
    while not done:
        action = np.array([np.clip(push(observation), -1, 1)], np.float32)
        observation, reward, terminated, truncated, info = env.step(action)
        total, steps, done = total + reward, steps + 1, terminated or truncated
    return total, steps, info


def test_episodes_start_with_a_hanging_pole(env: gymnasium.Env) -> None:
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        assert observation[3] < -0.998
        assert np.abs(observation[[0, 1, 2, 4]]).max() < 0.051


@pytest.mark.parametrize("seed", range(3))
def test_pumping_energy_brings_the_pole_up_and_is_success(env: gymnasium.Env, seed: int) -> None:
    total, steps, info = play(env, push_by_energy, seed)
    assert steps == 250
    assert info["is_success"]
    assert total > 170


def test_a_cart_at_rest_earns_next_to_nothing_and_fails(env: gymnasium.Env) -> None:
    total, steps, info = play(env, lambda _: 0.0)
    assert steps == 250
    assert not info["is_success"]
    assert 0 < total < 5


def test_leaving_the_track_terminates_without_success(env: gymnasium.Env) -> None:
    _, steps, info = play(env, lambda _: 1.0)
    assert steps < 50
    assert info["end_reason"] == "cart_left_track"
    assert info["is_success"] is False


def test_spinning_earns_less_than_a_third_of_standing() -> None:
    # At 8 rad/s, which takes the pole just over the top, in even steps of the angle.
    spin = np.mean([upright(angle=a, spin=8.0) for a in np.linspace(0, 2 * np.pi, 100)])
    assert upright() == 1.0
    assert spin < 0.15


def test_way_up_is_rewarded_even_far_from_the_middle() -> None:
    heights = [upright(cart=2.0, angle=angle) for angle in (np.pi, 2.0, 1.0, 0.0)]
    assert heights == sorted(heights)
    assert heights[-1] > 0.4


def test_upright_steps_count_up_and_start_again_when_the_pole_leans() -> None:
    task = CartPoleSwingUp()
    assert task.remember(state(angle=0.3, steps=7), NO_PUSH)["upright_steps"] == 8
    assert task.remember(state(angle=0.35, steps=7), NO_PUSH)["upright_steps"] == 0


@pytest.mark.parametrize(
    ("steps", "survived", "success"),
    [(UPRIGHT_STEPS, True, True), (UPRIGHT_STEPS - 1, True, False), (UPRIGHT_STEPS, False, False)],
)
def test_success_is_a_whole_upright_second_at_the_end(
    steps: int, survived: bool, success: bool
) -> None:
    task: Task = CartPoleSwingUp()
    assert bool(task.success(state(steps=steps), np.array(survived))) is success


def test_discrete_actions_push_left_not_at_all_and_right() -> None:
    env = gymnasium.make(ENV_ID, discrete=True)
    assert env.action_space == spaces.Discrete(3)
    changes = []
    for action in range(3):
        before = env.reset(seed=0)[0][1]
        changes.append(env.step(action)[0][1] - before)
    env.close()
    assert changes[0] < -0.1
    assert abs(changes[1]) < 0.05
    assert changes[2] > 0.1
