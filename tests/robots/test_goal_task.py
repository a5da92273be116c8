"""Tasks whose goal can be exchanged afterwards."""

import numpy as np
import pytest

from robots.kuka_reach import KukaReachEnv, KukaReachTask

ENVS = [KukaReachEnv]


def test_compute_reward_of_a_batch_equals_the_rewards_of_the_steps_exactly():
    env = KukaReachEnv(reward={"reached": 0.7, "distance": 1.3, "near": 0.1}, tolerance_m=0.3)
    rng = np.random.default_rng(0)
    achieved, desired, rewards = [], [], []
    for step in range(150):
        if step % 50 == 0:
            env.reset(seed=step)
        observation, reward, *_ = env.step(rng.uniform(-1, 1, 7))
        achieved.append(observation["achieved_goal"])
        desired.append(observation["desired_goal"])
        rewards.append(reward)
    computed = env.compute_reward(np.array(achieved), np.array(desired), [{}] * 150)
    assert computed.shape == (150,)
    assert computed.tolist() == rewards
    assert len({reward < -0.7 for reward in rewards}) == 2  # Some near the goal, some far.


@pytest.mark.parametrize(
    ("weights", "near", "far"),
    [
        ({"reached": 1, "distance": 0, "near": 0}, 0.0, -1.0),
        ({"reached": 0, "distance": 1, "near": 0}, -0.04, -0.2),
        ({"reached": 1, "distance": 1, "near": 0}, -0.04, -1.2),
    ],
)
def test_weights_choose_between_sparse_and_dense(weights, near, far):
    task = KukaReachTask(weights, tolerance_m=0.05)
    goals = np.array([[0.04, 0.0, 0.0], [0.0, 0.2, 0.0]])
    assert task.compute_reward(goals, np.zeros((2, 3))).tolist() == pytest.approx([near, far])


def test_a_goal_exactly_at_the_tolerance_is_reached():
    task = KukaReachTask({"reached": 1, "distance": 0, "near": 0}, tolerance_m=0.5)
    assert task.compute_reward(np.array([0.5, 0.0, 0.0]), np.zeros(3)) == 0.0


def test_a_goal_that_is_not_a_number_is_not_reached():
    task = KukaReachTask(None, tolerance_m=0.5)
    terms = task.goal_terms(np.array([np.nan, 0.0, 0.0]), np.zeros(3))
    assert terms["reached"] == -1.0


def test_tolerance_must_be_positive():
    with pytest.raises(ValueError, match="tolerance=0 must be positive"):
        KukaReachTask(None, tolerance_m=0)


def test_success_is_to_be_at_the_goal_at_the_end(env):
    results = []
    for offset in (0.0, 0.1):
        env.reset(seed=0)
        flange = env.task.achieved_goal(env.state)
        env.state.memory["goal"][:] = flange + np.array([offset, 0.0, 0.0])
        for _ in range(env.max_episode_steps):
            _, _, terminated, truncated, info = env.step(np.zeros(7))
            assert not terminated
        assert truncated
        results.append(info["is_success"])
    assert results == [True, False]


def test_desired_goal_stays_for_the_episode_and_changes_with_the_next(env):
    first, _ = env.reset(seed=0)
    for _ in range(10):
        observation = env.step(env.action_space.sample())[0]
        assert np.array_equal(observation["desired_goal"], first["desired_goal"])
    assert not np.array_equal(env.reset()[0]["desired_goal"], first["desired_goal"])
