"""The exact state of a robot environment: what continues from it, bit for bit."""

import json
from typing import Any

import numpy as np
import pytest
from continuing import Wander, actions_for, arm, cartpole, crawler, play, to_json

from rlzoo_plus.testing.robot_contract import first_steps
from robots.cartpole import SimpleRobotEnv
from robots.env import BaseRobotEnv
from robots.robot import ActionMode, RobotSpec
from robots.sensors import SensorSpec
from robots.world import WorldSpec

RESUME = """
import json, sys
sys.path.append("tests/robots")
from continuing import cartpole, actions_for, from_json, play
for state, start in json.loads({states!r}):
    env = cartpole({discrete})
    env.load_state_dict(from_json(state))
    print("DIGEST", play(env, actions_for(env)[start:])[-1])
    env.close()
"""


@pytest.mark.parametrize("discrete", [False, True])
def test_a_new_process_continues_bit_for_bit_across_both_kinds_of_end(
    discrete: bool, run_python: Any
) -> None:
    env = cartpole(discrete)
    actions = actions_for(env)
    states, expected, reasons = [], [], set()
    for start in (0, 1, 13, 39, 40, 87, 250):
        env.reset(seed=5)
        play(env, actions[:start])
        states.append((to_json(env.state_dict()), start))
        expected.append(
            play(env, actions[start:], lambda info: reasons.add(info.get("end_reason")))[-1]
        )
    env.close()
    assert {"pole_fell", "time_limit"} <= reasons

    process = run_python(RESUME.format(states=json.dumps(states), discrete=discrete))

    assert process.returncode == 0, process.stderr
    digests = [line.split()[1] for line in process.stdout.splitlines() if "DIGEST" in line]
    assert digests == expected


@pytest.mark.parametrize("mode", list(ActionMode))
@pytest.mark.parametrize("joints", [".*", ".*_1"])
def test_an_arm_continues_in_every_action_mode_with_and_without_passive_joints(
    mode: ActionMode, joints: str
) -> None:
    n_joints = 7 if joints == ".*" else 1
    env = arm(mode, Wander(n_joints), joints=joints)
    other = arm(mode, Wander(n_joints), joints=joints)
    actions = actions_for(env)
    env.reset(seed=2)
    play(env, actions[:93])
    other.load_state_dict(env.state_dict())
    assert play(other, actions[93:]) == play(env, actions[93:])
    env.close()
    other.close()


def test_an_ended_episode_may_be_saved_before_its_reset() -> None:
    env, other = cartpole(), cartpole()
    env.reset(seed=0)
    while not any(env.step(np.ones(1))[2:4]):
        pass
    other.load_state_dict(env.state_dict())
    assert np.array_equal(env.reset()[0], other.reset()[0])
    env.close()
    other.close()


def test_an_environment_with_a_history_continues_like_a_fresh_one(underway: SimpleRobotEnv) -> None:
    state, actions = underway.state_dict(), actions_for(underway)
    first = play(underway, actions)
    underway.reset(seed=9)
    play(underway, actions[:33])
    underway.load_state_dict(state)
    assert play(underway, actions) == first


def test_the_state_stays_as_it_was_while_the_environment_goes_on(underway: SimpleRobotEnv) -> None:
    state = underway.state_dict()
    before = to_json(state)
    play(underway, actions_for(underway))
    underway.load_state_dict(state)
    play(underway, actions_for(underway))
    assert to_json(state) == before


def test_a_loaded_environment_gives_the_same_state_back(underway: SimpleRobotEnv) -> None:
    other = cartpole()
    other.load_state_dict(underway.state_dict())
    assert to_json(other.state_dict()) == to_json(underway.state_dict())
    assert other.np_random_seed == 1
    other.close()


def test_scenery_does_not_hinder_and_does_not_count(underway: SimpleRobotEnv) -> None:
    rendered = cartpole(render_mode="rgb_array")
    rendered.load_state_dict(underway.state_dict())
    assert play(rendered, actions_for(underway)) == play(underway, actions_for(underway))
    rendered.close()


def test_a_robot_that_touches_the_ground_and_objects_continues() -> None:
    env, other = crawler(), crawler()
    actions = actions_for(env)
    env.reset(seed=4)
    play(env, actions[:70])
    assert env.state.object_position[..., 2].max() < 0.4
    assert env.state.contact.max() == 1.0
    other.reset(seed=5)
    play(other, actions[:9])
    other.load_state_dict(env.state_dict())
    assert play(other, actions[70:]) == play(env, actions[70:])
    env.close()
    other.close()


def test_a_state_from_before_the_first_reset_has_the_same_first_episode() -> None:
    env, other = cartpole(), cartpole()
    other.load_state_dict(env.state_dict())
    assert np.array_equal(env.reset()[0], other.reset()[0])
    env.close()
    other.close()


def test_robots_that_start_on_the_ground_forget_the_contacts_of_the_episode_before() -> None:
    spec = RobotSpec(
        "husky/husky.urdf",
        action_scale=8.0,
        action_mode=ActionMode.VELOCITY,
        joints=".*wheel",
        fixed_base=False,
        max_force=60.0,
        sensors=SensorSpec(base=True),
    )
    world = WorldSpec(ground_friction=2.0, cone_friction=False, solver_iterations=20)
    env = BaseRobotEnv(spec, Wander(4), world)
    actions = actions_for(env)[:40]
    forwards = first_steps(env, actions, range(40))
    assert forwards == first_steps(env, actions, range(39, -1, -1))
    env.close()
