"""What continues from the exact state of an environment, and worlds side by side: bit for bit."""

import json

import numpy as np
import pytest
from continuing import (
    CASES,
    EVERYTHING,
    Wander,
    actions_for,
    arm,
    cartpole,
    from_json,
    husky,
    play,
    to_json,
)

from rlzoo_plus.testing.robot_contract import check_same_numbers, first_steps
from robots.env import BaseRobotEnv
from robots.robot import ActionMode
from robots.vec_env import RobotVecEnv
from robots.world import WorldSpec

EVERY = pytest.mark.parametrize("make", CASES.values(), ids=CASES)
RESUME = """
import json, sys
sys.path.append("tests/robots")
from continuing import cartpole, actions_for, from_json, play
options, states = json.loads({given!r})
for state, start in states:
    env = cartpole(**options)
    env.load_state_dict(from_json(state))
    print("DIGEST", play(env, actions_for(env)[start:])[-1])
"""


@pytest.mark.parametrize(
    "options",
    [{}, {"discrete": True}, {"randomization": EVERYTHING}],
    ids=["continuous", "discrete", "randomized"],
)
def test_a_new_process_continues_bit_for_bit_across_both_kinds_of_end(options, run_python):
    env = cartpole(**options)
    actions = actions_for(env)
    states, expected, reasons = [], [], set()
    for start in (0, 1, 13, 39, 40, 87, 250):
        env.reset(seed=5)
        play(env, actions[:start])
        states.append((to_json(env.state_dict()), start))
        expected.append(
            play(env, actions[start:], lambda info: reasons.add(info.get("end_reason")))[-1]
        )
    assert {"pole_fell", "time_limit"} <= reasons

    process = run_python(RESUME.format(given=json.dumps([options, states])))

    assert process.returncode == 0, process.stderr
    digests = [line.split()[1] for line in process.stdout.splitlines() if "DIGEST" in line]
    assert digests == expected


@EVERY
@pytest.mark.parametrize("start", [0, 47])
def test_a_state_continues_in_an_environment_with_a_history(make, start):
    env, other = make(), make()
    actions = actions_for(env, 150)
    env.reset(seed=5)
    play(env, actions[:start])
    other.reset(seed=9)
    play(other, actions[:31])
    other.load_state_dict(from_json(to_json(env.state_dict())))
    assert to_json(other.state_dict()) == to_json(env.state_dict())
    assert play(other, actions[start:]) == play(env, actions[start:])


@EVERY
def test_worlds_side_by_side_give_the_numbers_of_single_ones(make):
    check_same_numbers(RobotVecEnv([make(), make()]), [make(), make()], 100)


@pytest.mark.parametrize("mode", list(ActionMode))
@pytest.mark.parametrize("joints", [".*", ".*_1"])
def test_an_arm_continues_in_every_action_mode_with_and_without_passive_joints(mode, joints):
    env, other = arm(mode, joints), arm(mode, joints)
    actions = actions_for(env, 150)
    env.reset(seed=2)
    play(env, actions[:93])
    other.load_state_dict(env.state_dict())
    assert play(other, actions[93:]) == play(env, actions[93:])


def test_an_ended_episode_may_be_saved_before_its_reset():
    env, other = cartpole(), cartpole()
    env.reset(seed=0)
    while not any(env.step(np.ones(1))[2:4]):
        pass
    other.load_state_dict(env.state_dict())
    assert np.array_equal(env.reset()[0], other.reset()[0])


def test_the_state_stays_as_it_was_while_the_environment_goes_on(underway):
    state, actions = underway.state_dict(), actions_for(underway)
    before, first = to_json(state), play(underway, actions)
    underway.load_state_dict(state)
    assert play(underway, actions) == first
    assert to_json(state) == before


def test_the_seed_of_the_generator_comes_back(underway):
    other = cartpole()
    other.load_state_dict(underway.state_dict())
    assert other.np_random_seed == 1


def test_scenery_does_not_hinder_and_does_not_count(underway):
    rendered = cartpole(render_mode="rgb_array")
    rendered.load_state_dict(underway.state_dict())
    assert play(rendered, actions_for(underway)) == play(underway, actions_for(underway))


def test_a_state_from_before_the_first_reset_has_the_same_first_episode():
    env, other = cartpole(), cartpole()
    other.load_state_dict(env.state_dict())
    assert np.array_equal(env.reset()[0], other.reset()[0])


def test_robots_that_start_on_the_ground_forget_the_contacts_of_the_episode_before():
    world = WorldSpec(ground_friction=2.0, cone_friction=False, solver_iterations=20)
    env = BaseRobotEnv(husky(), Wander(4), world)
    actions = actions_for(env)[:40]
    forwards = first_steps(env, actions, range(40))
    assert forwards == first_steps(env, actions, range(39, -1, -1))
