"""The parts of ``benchmarks/robots.py`` and ``native_worlds.py`` that their figures rest on."""

from itertools import chain

from support.native import needs_plugin

import robots
from benchmarks.native_worlds import Physics, _inputs, _ratio
from benchmarks.robots import TARGETS, _commands, compare, make, random_actions
from robots.vec_env import RobotVecEnv


def test_ratio_is_the_median_of_the_rounds_after_the_first():
    result = compare(lambda number: 10.0 * (number + 1), lambda number: 10.0, rounds=3)
    assert (result.low, result.ratio, result.high) == (2.0, 3.0, 4.0)
    assert (result.ours, result.theirs) == (30.0, 10.0)


def test_bare_physics_goes_the_way_of_the_environment():
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


def test_every_robot_with_a_target_exists():
    assert {env_id for _, env_id in TARGETS} <= set(robots.ROBOT_IDS)


def test_ratios_are_those_of_each_round():
    assert _ratio([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == (2.0, 1.0, 3.0)


@needs_plugin
def test_physics_alone_goes_the_way_of_the_environments():
    venv = RobotVecEnv([make("robots/CartPoleBalance-v0") for _ in range(2)])
    physics = Physics("robots/CartPoleBalance-v0", 2)
    inputs = _inputs(venv, [venv.action_space.sample() for _ in range(20)], seed=3)
    physics.venv.reset(seed=3)
    for one in inputs:
        physics.step(one)
    rows = [world.sensors.read() for world in physics.venv._worlds]
    assert rows == [world.sensors.read() for world in venv._worlds]
