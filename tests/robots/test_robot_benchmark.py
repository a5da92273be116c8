"""The parts of ``benchmarks/robots.py`` that its figures rest on."""

from itertools import chain

import robots
from benchmarks.robots import TARGETS, _commands, compare, make, random_actions


def test_ratio_is_the_median_of_the_rounds_after_the_first() -> None:
    result = compare(lambda number: 10.0 * (number + 1), lambda number: 10.0, rounds=3)
    assert (result.low, result.ratio, result.high) == (2.0, 3.0, 4.0)
    assert (result.ours, result.theirs) == (30.0, 10.0)


def test_bare_physics_goes_the_way_of_the_environment() -> None:
    env, bare = make("robots/CartPoleBalance-v0"), make("robots/CartPoleBalance-v0")
    actions = random_actions(env.action_space, 60, 1)
    episodes = _commands(bare, actions, 1)
    assert len(list(chain(*episodes))) == 60
    env.reset(seed=1)
    bare.reset(seed=1)
    for action, command in zip(actions, episodes[0], strict=False):
        env.step(action)
        bare.robot.drive.advance(command)
    assert bare.world.sensors.read() == env.readings
    env.close()
    bare.close()


def test_every_robot_with_a_target_exists() -> None:
    assert {env_id for _, env_id in TARGETS} <= set(robots.ROBOT_IDS)
