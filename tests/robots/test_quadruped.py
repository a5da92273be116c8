"""The quadrupeds: commands, trot, reward, ends and success."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest
import yaml
from continuing import episode

from benchmarks.tracking import best_blind_return
from robots.follow_velocity import (
    MAX_ERRORS,
    CommandRanges,
    FollowVelocity,
    Stance,
    foot_slip,
    motor_power,
)
from robots.frames import columns, yaw
from robots.quadruped import CORRECTION, STRIDES
from robots.sensors import State

N_ACTIONS = 15
ENVS = ["robots/A1Walk-v1", "robots/Vision60Walk-v1"]
FORWARD, COMMAND, CLOCK = 0, slice(9, 12), slice(15, 17)
STANCE = Stance((0.0,) * 3, 0.3, 0.15, power_w=100.0, foot_radius_m=0.02)
CONF = Path(__file__).parents[2] / "conf" / "env"
# What the mean return of a policy that does not see its command must stay below.
SHARE_OF_SOLVED = 0.8


def solved_return(env):
    """Return the threshold of the shipped task."""
    files = {"A1WalkEnv": "a1_walk.yaml", "Vision60WalkEnv": "vision60_walk.yaml"}
    text = (CONF / files[type(env).__name__]).read_text(encoding="utf-8")
    return float(yaml.safe_load(text)["solved_return"])


def walker(n_commands=4, **ranges):
    """Return the task of a robot with three joints, a command of which lasts 2 s: 20 steps."""
    commands = CommandRanges(**{"command_s": 2.0, **ranges})
    return FollowVelocity(STANCE, commands, 0.1, n_actions=3, n_commands=n_commands)


def walking(**changes):
    """Return a state of that robot: level, at its height, exactly at its command."""
    command = np.array([0.5, 0.0, 0.2])
    memory = {
        "schedule": np.stack([command] * 4),
        "command": command,
        "action": np.zeros(3),
        "velocity": command,
        "deviation": np.zeros(3),
        "errors": np.zeros(3),
        "n_errors": np.zeros(()),
        "count": np.zeros(()),
    }
    at_command = State(
        joint_position=np.zeros(3),
        joint_velocity=np.zeros(3),
        joint_effort=np.zeros(3),
        base_position=np.array([0.0, 0.0, 0.3]),
        base_orientation=np.array([0.0, 0.0, 0.0, 1.0]),
        base_velocity=np.array([0.5, 0.0, 0.0]),
        base_angular_velocity=np.array([0.0, 0.0, 0.2]),
        link_velocity=np.zeros((1, 3)),
        link_angular_velocity=np.zeros((1, 3)),
        contact=np.ones(1),
        memory=memory,
    )
    return at_command._replace(**changes)


def moved(task, state, steps):
    """Return the state after that many steps at the same velocity; the first call is the reset."""
    for _ in range(steps + 1):
        state = state._replace(memory=task.remember(state, np.zeros(3)))
    return state


def play(env, steps, **strides):
    """Step with constant strides, named as in ``STRIDES``; return the last info."""
    env.reset(seed=0)
    action = np.zeros(N_ACTIONS)
    for name, stride in strides.items():
        action[STRIDES.index(name)] = stride
    info: dict = {}
    for _ in range(steps):
        _, _, terminated, truncated, info = env.step(action)
        if terminated or truncated:
            break
    return info


def test_zero_actions_step_on_the_spot_and_stay_far_below_the_threshold(env):
    total, _, info = episode(env, lambda _: np.zeros(N_ACTIONS))
    assert info["end_reason"] == "time_limit"
    assert np.hypot(*env.state.base_position[:2]) < 1.5
    assert not info["is_success"]
    assert total < SHARE_OF_SOLVED * solved_return(env)


def test_no_policy_that_ignores_its_command_comes_near_the_threshold(env):
    assert best_blind_return(env.task) < SHARE_OF_SOLVED * solved_return(env)


def test_what_any_blind_policy_can_earn_is_earned_by_a_constant_motion():
    always_the_same = walker(forward_m_s=[0.5, 0.5], sideways_m_s=[0, 0], turn_rad_s=[0.2, 0.2])
    always_the_same.commands = CommandRanges([0.5, 0.5], [0, 0], [0.2, 0.2], standing=0.0)
    assert best_blind_return(always_the_same) == pytest.approx(500)
    assert best_blind_return(walker(forward_m_s=[-9, 9], turn_rad_s=[-9, 9])) < 150


@pytest.mark.parametrize("motion", [(0.0, 0.0, 0.0), (0.2, 0.0, 0.0), (0.5, 0.1, 0.4)])
def test_a_constant_motion_fails_success(motion):
    task, episodes = FollowVelocity(STANCE, CommandRanges(), 0.1, n_actions=3), 400
    rng = np.random.default_rng(0)
    starts = [task.sample_initial_state(rng).memory for _ in range(episodes)]
    memory = {name: np.stack([start[name] for start in starts]) for name in starts[0]}
    state = walking(
        base_orientation=np.tile([0.0, 0.0, 0.0, 1.0], (episodes, 1)),
        base_velocity=np.tile([*motion[:2], 0.0], (episodes, 1)),
        base_angular_velocity=np.tile([0.0, 0.0, motion[2]], (episodes, 1)),
        memory=memory,
    )
    ended = moved(task, state, 100)
    assert (ended.memory["n_errors"] == 4).all()
    assert task.success(ended, np.ones(episodes, bool)).mean() < 0.02


def test_the_trot_lifts_each_foot_once_a_cycle_and_the_others_stand_still(env):
    env.reset(seed=0)
    contacts, slips, heights = [], [], []
    for _ in range(220):
        env.step(np.zeros(N_ACTIONS))
        contacts.append(env.state.contact)
        slips.append(np.hypot(*np.transpose(foot_slip(env.state, env.stance.foot_radius_m))))
        heights.append(env.state.base_position[2])
    contact, slip = np.array(contacts[100:]), np.array(slips[100:])
    touchdowns = (np.diff(contact, axis=0) > 0).sum(axis=0)
    assert (abs(touchdowns - 6) <= 1).all()
    assert (abs(contact.mean(axis=0) - 0.5) < 0.1).all()
    assert np.percentile(slip[contact > 0], 90) < 0.05
    # The legs that stand hold the body up; they do not push it off the ground.
    assert np.ptp(heights[100:]) < 0.015
    assert np.hypot(*env.state.base_position[:2]) < 0.5


def test_without_lift_the_robot_stands_still():
    env = gymnasium.make("robots/A1Walk-v1", lift=0.0).unwrapped
    play(env, 100)
    assert abs(env.state.joint_velocity).max() < 0.05
    assert env.state.base_position[2] == pytest.approx(0.27, abs=0.02)


@pytest.mark.parametrize("stride", [-0.5, 0.5])
def test_each_stride_moves_its_own_way(env, stride):
    play(env, 150, ahead=stride)
    assert np.sign(stride) * env.state.base_position[0] > 0.5
    play(env, 150, sideways=stride)
    assert np.sign(stride) * env.state.base_position[1] > 0.3
    play(env, 100, turning=stride)
    assert 0.3 < np.sign(stride) * yaw(columns(env.state.base_orientation)) < 2.0


def test_further_actions_correct_one_joint_each():
    env = gymnasium.make("robots/A1Walk-v1", lift=0.0).unwrapped
    play(env, 60)
    at_rest = env.state.joint_position
    action = np.zeros(N_ACTIONS)
    action[3 + 4] = 1.0
    for _ in range(60):
        env.step(action)
    bent = env.state.joint_position - at_rest
    assert bent[4] == pytest.approx(CORRECTION * 0.5, abs=0.03)
    assert abs(np.delete(bent, 4)).max() < 0.06


def test_an_action_is_smoothed():
    task, full = walker(), np.ones(3)
    state, shares = walking(), []
    for _ in range(30):
        state = state._replace(memory=task.remember(state, full))
        shares.append(state.memory["action"][0])
    assert shares[0] == pytest.approx(0.15)
    assert shares[-1] > 0.99
    assert np.all(np.diff(shares) > 0)


def test_legs_that_give_way_end_the_episode_as_a_fall(env):
    env.robot.drive.set_strength(0.0)
    info = play(env, 500)
    assert info["end_reason"] == "fell"
    assert info["is_success"] is False


def test_masses_and_inertias_are_those_of_a_body(env):
    dynamics = env.simulation.link_dynamics(env.robot.body).values()
    assert 10 < sum(link.mass_kg for link in dynamics) < 30
    for link in dynamics:
        # No link is wider than 1 m, nor smaller than a coin.
        assert all(1e-4 * link.mass_kg < i < 0.5 * max(link.mass_kg, 1e-3) for i in link.inertia)


def test_commands_fill_their_ranges_and_stay_inside():
    ranges = {"forward_m_s": (0.2, 0.4), "sideways_m_s": (-0.1, 0.1), "turn_rad_s": (-0.5, 0.0)}
    task = walker(n_commands=300, standing=0.0, **ranges)
    drawn = task.sample_initial_state(np.random.default_rng(0)).memory["schedule"]
    low, high = np.array(list(ranges.values())).T
    assert ((low <= drawn) & (drawn <= high)).all()
    assert np.allclose(drawn.min(axis=0), low, atol=0.02)
    assert np.allclose(drawn.max(axis=0), high, atol=0.02)


def test_shipped_commands_go_every_way_and_some_are_to_stand(env):
    drawn = env.task.commands.sample(np.random.default_rng(0), 1000)
    for column in drawn.T:
        assert (column < -0.1).mean() > 0.1
        assert (column > 0.1).mean() > 0.1
    assert 0.07 < (drawn == 0.0).all(axis=1).mean() < 0.13


def test_commands_are_observed_and_change_every_few_seconds():
    env = gymnasium.make("robots/A1Walk-v1", command_s=1.2, episode_s=3.6, standing=0.0).unwrapped
    observation, _ = env.reset(seed=0)
    seen = [observation[COMMAND]] + [env.step(np.zeros(N_ACTIONS))[0][COMMAND] for _ in range(179)]
    schedule = env.state.memory["schedule"]
    assert len(schedule) == 3
    assert len(np.unique(schedule, axis=0)) == 3
    assert np.allclose(seen, np.repeat(schedule, 60, axis=0))


def test_after_the_last_command_comes_the_first():
    task = walker(n_commands=2)
    state = walking()
    schedule = np.array([[0.1, 0.0, 0.0], [0.2, 0.0, 0.0]])
    state = state._replace(memory={**state.memory, "schedule": schedule})
    commands = []
    for _ in range(50):
        state = moved(task, state, 0)
        commands.append(state.memory["command"][0])
    assert commands == [0.1] * 20 + [0.2] * 20 + [0.1] * 10


def test_a_step_is_judged_by_the_command_that_was_seen_before_it():
    task, seen = walker(), np.array([0.5, 0.0, 0.2])
    next_one = np.array([-0.4, 0.0, 0.0])
    state = walking()
    state = state._replace(memory={**state.memory, "schedule": np.stack([seen, next_one])})
    state = moved(task, state, 19)
    assert task.reward_terms(state, np.zeros(3))["forward"] == pytest.approx(1.0)
    state = moved(task, state, 0)
    assert task.reward_terms(state, np.zeros(3))["forward"] < 0.1


def test_a_command_shorter_than_settling_is_refused():
    with pytest.raises(ValueError, match=r"command_s=1\.0 must be more than 1 s"):
        gymnasium.make("robots/A1Walk-v1", command_s=1.0)


@pytest.mark.parametrize("bad", [(0.8, 0.3), (0.5,)])
def test_a_range_that_is_none_is_refused(bad):
    with pytest.raises(ValueError, match=r"forward_m_s=.* is no range"):
        gymnasium.make("robots/A1Walk-v1", forward_m_s=bad)


def test_walking_exactly_as_commanded_earns_one_a_step():
    task = walker()
    terms = task.reward_terms(walking(), np.zeros(3))
    assert sum(task.weights[name] * term for name, term in terms.items()) == pytest.approx(1.0)


def test_velocity_is_measured_in_the_frame_of_the_body():
    task = walker()
    facing_left = np.array([0.0, 0.0, np.sqrt(0.5), np.sqrt(0.5)])
    along = walking(base_orientation=facing_left, base_velocity=np.array([0.0, 0.5, 0.0]))
    assert task.reward_terms(along, np.zeros(3))["forward"] == pytest.approx(1.0)
    assert task.observation(along)[FORWARD] == pytest.approx(0.5)
    across = moved(task, walking(base_orientation=facing_left), 30)
    assert task.reward_terms(across, np.zeros(3))["forward"] < 0.2


@pytest.mark.parametrize(
    ("term", "changes"),
    [
        ("forward", {"base_velocity": np.array([0.2, 0.0, 0.0])}),
        ("sideways", {"base_velocity": np.array([0.5, 0.1, 0.0])}),
        ("turn", {"base_angular_velocity": np.array([0.0, 0.0, -0.2])}),
        ("posture", {"base_position": np.array([0.0, 0.0, 0.2])}),
        ("posture", {"base_orientation": np.array([0.2, 0.0, 0.0, np.sqrt(0.96)])}),
        ("vertical", {"base_velocity": np.array([0.5, 0.0, 0.5])}),
        ("rocking", {"base_angular_velocity": np.array([1.0, 0.0, 0.2])}),
        ("slip", {"link_velocity": np.array([[0.5, 0.5, 0.0]])}),
    ],
)
def test_each_deviation_lowers_its_term(term, changes):
    task = walker()
    good = task.reward_terms(walking(), np.zeros(3))[term]
    deviating = moved(task, walking(**changes), 30)
    assert task.reward_terms(deviating, np.zeros(3))[term] < good - 0.05


def test_power_and_a_changed_action_cost():
    task = walker()
    busy = walking(
        joint_effort=np.array([10.0, -20.0, 0.0]), joint_velocity=np.array([1.0, 2.0, 3.0])
    )
    assert motor_power(busy) == 50.0
    terms = task.reward_terms(busy, np.array([0.5, 0.0, -1.0]))
    assert terms["power"] == -0.5
    assert terms["action_change"] == -1.25


def test_a_low_or_tilted_base_is_a_fall():
    task = walker()
    assert not task.terminations(walking())["fell"]
    assert task.terminations(walking(base_position=np.array([0.0, 0.0, 0.1])))["fell"]
    on_its_side = np.array([np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)])
    assert task.terminations(walking(base_orientation=on_its_side))["fell"]


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize(("further", "succeeds"), [(-0.01, True), (0.01, False)])
def test_success_needs_a_small_error_on_every_axis(axis, further, succeeds):
    task = walker()
    motion = np.array([0.5, 0.0, 0.2])
    motion[axis] += MAX_ERRORS[axis] + further
    state = walking(
        base_velocity=np.array([*motion[:2], 0.0]),
        base_angular_velocity=np.array([0.0, 0.0, motion[2]]),
    )
    ended = moved(task, state, 80)
    assert bool(task.success(ended, np.array(True))) is succeeds
    assert not task.success(ended, np.array(False))


def test_the_time_to_settle_does_not_count_for_success():
    task = walker()
    still = np.zeros(3)
    state = moved(task, walking(base_velocity=still), 10)
    state = state._replace(base_velocity=np.array([0.5, 0.0, 0.0]))
    for _ in range(10):
        state = moved(task, state, 0)
    assert state.memory["n_errors"] == 1
    assert np.allclose(state.memory["errors"], 0.0)


def test_success_needs_a_whole_command():
    task = walker()
    assert not task.success(moved(task, walking(), 19), np.array(True))
    assert task.success(moved(task, walking(), 20), np.array(True))


def test_a_rolling_foot_does_not_slip_and_one_in_the_air_neither():
    rolling = {
        "link_velocity": np.array([[0.1, 0.2, 0.0]]),
        "link_angular_velocity": np.array([[-10.0, 5.0, 0.0]]),
    }
    assert np.allclose(foot_slip(walking(**rolling), 0.02), 0.0)
    sliding = {"link_velocity": np.array([[0.1, 0.2, 0.0]])}
    assert np.allclose(foot_slip(walking(**sliding), 0.02), [(0.1, 0.2)])
    assert np.allclose(foot_slip(walking(**sliding, contact=np.zeros(1)), 0.02), 0.0)


def test_the_clock_of_the_steps_is_observed(env):
    env.reset(seed=0)
    radians = 2 * np.pi * 2.5 / 50
    for count in range(2, 30):
        clock = env.step(np.zeros(N_ACTIONS))[0][CLOCK]
        assert np.allclose(clock, [np.sin(count * radians), np.cos(count * radians)], atol=1e-4)


@pytest.mark.parametrize("env_id", ENVS)
def test_without_a_gait_the_actions_set_the_joints_around_the_stance(env_id):
    env = gymnasium.make(env_id, gait="none", action_scale_rad=0.4, lift=1.0).unwrapped
    env.reset(seed=0)
    assert env.action_space.shape == (12,)
    action = np.linspace(-1, 1, 12)
    drive, smooth = env.robot.drive, 0.4 * action
    targets = drive.targets(action, env.state)
    np.testing.assert_allclose(targets - env.stance.joint_position, 0.4 * smooth, atol=1e-9)
    # Nothing moves by itself: the targets of no action are those of the stance at any time.
    for _ in range(30):
        env.step(np.zeros(12))
        np.testing.assert_allclose(
            drive.targets(np.zeros(12), env.state), env.stance.joint_position, atol=1e-9
        )


@pytest.mark.parametrize("env_id", ENVS)
def test_without_a_gait_feet_earn_by_stepping_in_time(env_id):
    env = gymnasium.make(env_id, gait="none").unwrapped
    env.reset(seed=0)
    pairs, task = env.trot.pair, env.task

    def earned(counts, contact):
        memory = {**env.state.memory, "count": counts}
        states = env.state._replace(contact=contact, memory=memory)
        return task.reward_terms(states, np.zeros(12))["stepping"]

    counts = np.arange(20.0)
    wave = np.sin(2 * np.pi * 2.5 / 50 * counts)
    swings = np.outer(wave, pairs) > 0
    in_time = np.array([earned(c, 1.0 * ~each) for c, each in zip(counts, swings, strict=True)])
    assert in_time.min() >= 0.0
    assert in_time.mean() == pytest.approx(1.0, abs=0.02)
    for still in (np.ones(4), np.zeros(4)):
        assert [earned(c, still) for c in counts] == pytest.approx([0.0] * 20, abs=1e-12)
    assert sum(earned(c, 1.0 * each) for c, each in zip(counts, swings, strict=True)) < -19.0
    assert sum(task.weights[name] for name in ("forward", "sideways", "turn", "posture")) + (
        task.weights["stepping"]
    ) == pytest.approx(1.0)


def test_an_unknown_gait_is_refused():
    with pytest.raises(ValueError, match="gait='pace' is none of trot, none"):
        gymnasium.make("robots/A1Walk-v1", gait="pace")
