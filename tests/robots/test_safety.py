"""Limits that are watched, and what follows when they are broken."""

import numpy as np
import pytest
from continuing import actions_for, arm, cartpole, episode

from rlzoo_plus.testing.robot_contract import play_randomly
from robots.robot import ActionMode

PUSH = np.array([1.0])


def watch(**safety):
    """Return a cart-pole with limits, at the start of an episode."""
    env = cartpole(safety=safety)
    env.reset(seed=0)
    return env


def test_only_the_limit_that_is_broken_is_counted():
    env = watch(max_torque=5.0, max_velocity=100.0, joint_margin=0.1, max_action_rate=2.0)
    assert env.step(PUSH)[4]["violations"] == {"torque": 1}
    assert "violations" not in env.step(0.4 * PUSH)[4]


def test_the_torque_that_counts_is_that_of_the_motors_strength():
    for strength, broken in ((0.5, False), (0.7, True)):
        env = cartpole(motor_strength=strength, safety={"max_torque": 6.0})
        env.reset(seed=0)
        assert ("violations" in env.step(PUSH)[4]) == broken


def test_the_rate_of_actions_is_judged_from_rest_and_by_what_the_policy_chose():
    env = cartpole(latency=3, safety={"max_action_rate": 0.9})
    env.reset(seed=0)
    seen = [env.step(action)[4].get("violations") for action in (PUSH, PUSH, -PUSH, 0.0 * PUSH)]
    assert seen == [{"action_rate": 1}, None, {"action_rate": 1}, {"action_rate": 1}]
    env.reset(seed=0)
    assert "violations" not in env.step(0.5 * PUSH)[4]


def test_only_driven_joints_are_limited():
    env = watch(max_velocity=0.15)
    infos, fast = [], False
    for _ in range(30):
        infos.append(env.step(np.zeros(1))[4])
        fast |= bool(abs(env.state.joint_velocity[1]) > 0.15)
    assert fast
    assert not any("violations" in info for info in infos)


def test_every_joint_near_its_limit_is_counted():
    env = arm(ActionMode.POSITION, safety={"joint_margin": 0.5})
    env.reset(seed=0)
    counts = [env.step(np.ones(7))[4].get("violations") for _ in range(20)]
    # All joints go to 2 rad; of the Kuka's limits, three are 2.09 rad and four are wider.
    assert counts[0] is None
    assert counts[-1] == {"joint_position": 3}


@pytest.mark.parametrize("mode", [ActionMode.POSITION, ActionMode.VELOCITY, ActionMode.PD])
def test_torques_are_known_in_modes_of_motors(mode):
    for limit, broken in ((0.01, True), (1e6, False)):
        env = arm(mode, safety={"max_torque": limit})
        env.reset(seed=0)
        info = env.step(np.ones(7))[4]
        assert ("violations" in info) == broken


def test_counting_changes_neither_rewards_nor_observations():
    env, plain = cartpole(safety={"max_velocity": 0.2, "max_torque": 3.0}), cartpole()
    for (a, reward_a, _), (b, reward_b, _) in zip(
        play_randomly(env, 100), play_randomly(plain, 100), strict=True
    ):
        assert np.array_equal(a, b)
        assert reward_a == reward_b


def test_the_last_step_tells_how_often_limits_were_broken():
    env = watch(max_velocity=0.3, max_torque=5.0)
    totals = {"velocity": 0, "torque": 0}
    for action in actions_for(env):
        *_, terminated, truncated, info = env.step(action)
        for name, count in info.get("violations", {}).items():
            totals[name] += count
        if terminated or truncated:
            break
    assert info["episode_violations"] == totals
    assert min(totals.values()) > 0


def test_a_penalty_is_a_term_of_the_reward_for_every_limit_that_is_broken():
    env = watch(max_torque=5.0, max_action_rate=0.8, on_violation="penalty", penalty=0.3)
    for action, cost in ((1.0, -0.6), (1.0, -0.3), (0.5, 0.0)):
        _, reward, _, _, info = env.step(action * PUSH)
        assert info["reward_terms"]["safety"] == pytest.approx(cost)
        assert reward == sum(info["reward_terms"].values())


def test_the_penalty_is_summed_over_the_episode():
    env = watch(max_torque=5.0, on_violation="penalty")
    episode_return, _, info = episode(env, lambda _: PUSH)
    assert sum(info["episode_terms"].values()) == pytest.approx(episode_return)
    assert info["episode_terms"]["safety"] == -info["episode_violations"]["torque"]


def test_a_broken_limit_can_end_the_episode_without_success():
    env = watch(max_torque=5.0, on_violation="terminate")
    assert env.step(0.4 * PUSH)[2] is False
    *_, terminated, truncated, info = env.step(PUSH)
    assert (terminated, truncated) == (True, False)
    assert info["end_reason"] == "unsafe"
    assert info["is_success"] is False


@pytest.mark.parametrize(
    ("safety", "message"),
    [
        ({"max_velocty": 1.0}, "safety: 'max_velocty' is unknown. Did you mean 'max_velocity'"),
        ({}, "states no limit. Set one of: joint_margin"),
        (3.0, "safety=3.0 must be a mapping"),
        ({"max_velocity": -1.0}, "safety.max_velocity=-1.0 must be a number of at least 0"),
        ({"max_torque": [1.0, 2.0]}, "2 values for 1 driven joints. Give one .* slider_to_cart"),
        ({"max_torque": 1.0, "on_violation": "stop"}, "safety.on_violation: 'stop' is unknown"),
        ({"max_torque": 1.0, "penalty": 2.0}, "no effect with on_violation='count'"),
        ({"joint_margin": 20.0}, "leaves no room: the narrowest joint has 30"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_fix(safety, message):
    with pytest.raises(ValueError, match=message):
        cartpole(safety=safety)


def test_a_penalty_is_refused_where_goals_are_exchanged():
    from robots.kuka_reach import KukaReachEnv

    with pytest.raises(ValueError, match="which are exchanged afterwards"):
        KukaReachEnv(safety={"max_velocity": 1.0, "on_violation": "penalty"})
