"""The cart-pole: its task for one world and for many, and its options."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from robots.cartpole import CartPoleBalance
from robots.sensors import State
from robots.vec_env import RobotVecEnv

ENV_ID = "robots/CartPoleBalance-v0"


def balance(env: gymnasium.Env, discrete: bool = False) -> tuple[float, int, dict]:
    """Return return, length and last info of an episode under a hand-made linear controller."""
    (x, v, sine, _, w), _ = env.reset(seed=1)
    total, steps, done, info = 0.0, 0, False, {}
    while not done:
        push = float(np.clip(x + v + 10.0 * sine + 2.0 * w, -1, 1))
        action = int(push > 0) if discrete else np.array([push], np.float32)
        (x, v, sine, _, w), reward, terminated, truncated, info = env.step(action)
        total, steps, done = total + reward, steps + 1, terminated or truncated
    return total, steps, info


@pytest.mark.parametrize("discrete", [False, True])
def test_a_good_controller_reaches_98_percent_of_the_maximum_return(discrete: bool) -> None:
    env = gymnasium.make(ENV_ID, discrete=discrete)
    episode_return, steps, info = balance(env, discrete)
    env.close()
    assert steps == 500
    assert info["is_success"]
    assert info["end_reason"] == "time_limit"
    assert 490 <= episode_return <= 500


def test_a_falling_pole_terminates_without_success(cartpole: gymnasium.Env) -> None:
    cartpole.reset(seed=0)
    for _ in range(500):
        _, _, terminated, truncated, info = cartpole.step(np.array([1.0], np.float32))
        if terminated or truncated:
            break
    assert terminated
    assert not truncated
    assert info["is_success"] is False
    assert info["end_reason"] == "pole_fell"


def test_of_several_ends_at_once_the_first_one_is_reported() -> None:
    worlds = RobotVecEnv([gymnasium.make(ENV_ID).unwrapped for _ in range(2)])
    worlds.reset(seed=0)
    for _ in range(200):
        infos = worlds.step_worlds(np.array([[1.0], [0.0]])).infos
    assert (abs(worlds.state.joint_position[0]) > [2.4, 0.2095]).all()
    assert [info["end_reason"] for info in infos] == ["pole_fell", "pole_fell"]
    assert [info["is_success"] for info in infos] == [False, False]
    assert [set(info["episode_terms"]) for info in infos] == [{"alive", "centred", "effort"}] * 2
    worlds.close()


def test_discrete_actions_push_with_full_force_to_either_side() -> None:
    env = gymnasium.make(ENV_ID, discrete=True)
    assert env.action_space == spaces.Discrete(2)
    velocities = []
    for action in (0, 1):
        env.reset(seed=0)
        velocities.append(env.step(action)[0][1])
    env.close()
    assert velocities[0] < -0.1
    assert velocities[1] > 0.1


def test_force_is_held_over_all_substeps(cartpole: gymnasium.Env) -> None:
    _, velocity = cartpole.reset(seed=0)[0][:2]
    after = cartpole.step(np.array([1.0], np.float32))[0][1]
    # 10 N on 1.1 kg for 0.02 s; one substep alone would give a quarter.
    assert after - velocity == pytest.approx(10 / 1.1 * 0.02, rel=0.2)


def test_actions_beyond_the_space_are_clipped(cartpole: gymnasium.Env) -> None:
    observations = []
    for push in (1.0, 5.0):
        cartpole.reset(seed=0)
        observations.append(cartpole.unwrapped.step(np.array([push], np.float32))[0])
    assert np.array_equal(*observations)


def test_an_action_that_is_not_a_number_is_an_error(cartpole: gymnasium.Env) -> None:
    cartpole.reset(seed=0)
    with pytest.raises(FloatingPointError, match="nan"):
        cartpole.unwrapped.step(np.array([np.nan], np.float32))


def test_episode_length_follows_episode_s() -> None:
    env = gymnasium.make(ENV_ID, episode_s=0.2)
    assert balance(env)[1] == 10
    env.close()


def test_reward_weights_merge_into_the_defaults() -> None:
    assert CartPoleBalance({"effort": 0.02}).weights == {
        "alive": 0.5,
        "centred": 0.5,
        "effort": 0.02,
    }


def test_misspelt_reward_term_gets_did_you_mean() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'effort'\?"):
        CartPoleBalance({"efort": 0.02})


def test_reward_never_exceeds_one(cartpole: gymnasium.Env) -> None:
    cartpole.reset(seed=0)
    _, reward, *_ = cartpole.step(np.zeros(1, np.float32))
    assert 0.9 < reward <= 1.0


@pytest.mark.parametrize("n_worlds", [1, 5, 1000])
def test_many_worlds_give_the_same_numbers_as_single_ones(n_worlds: int) -> None:
    rng = np.random.default_rng(0)
    task = CartPoleBalance()
    worlds = State(rng.normal(0, 1, (n_worlds, 2)), rng.normal(0, 3, (n_worlds, 2)))
    worlds.joint_position[:, 1] *= 0.2
    actions = rng.uniform(-1, 1, (n_worlds, 1))
    survived = rng.random(n_worlds) < 0.5

    observations = task.observation(worlds)
    terms = task.reward_terms(worlds, actions)
    ends = task.terminations(worlds)
    successes = task.success(worlds, survived)

    assert observations.shape == (n_worlds, 5)
    assert observations.dtype == np.float32
    assert observations.flags.c_contiguous
    for i in range(n_worlds):
        one = State(worlds.joint_position[i], worlds.joint_velocity[i])
        assert observations[i].tobytes() == task.observation(one).tobytes()
        one_terms = task.reward_terms(one, actions[i])
        assert {name: values[i] for name, values in terms.items()} == one_terms
        assert {name: flags[i] for name, flags in ends.items()} == task.terminations(one)
        assert successes[i] == task.success(one, survived[i])


def test_worlds_may_have_more_than_one_leading_dimension() -> None:
    task = CartPoleBalance()
    worlds = State(np.full((2, 3, 2), 0.1), np.zeros((2, 3, 2)))
    assert task.observation(worlds).shape == (2, 3, 5)
    assert {v.shape for v in task.reward_terms(worlds, np.zeros((2, 3, 1))).values()} == {(2, 3)}
    assert {v.shape for v in task.terminations(worlds).values()} == {(2, 3)}
