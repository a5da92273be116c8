"""The parts of ``benchmarks/native_worlds.py`` that its figures rest on."""

from support.native import needs_plugin

from benchmarks.native_worlds import Physics, _inputs, _ratio
from benchmarks.robots import make
from robots.vec_env import RobotVecEnv


def test_ratios_are_those_of_each_round() -> None:
    assert _ratio([1.0, 4.0, 9.0], [1.0, 2.0, 3.0]) == (2.0, 1.0, 3.0)


@needs_plugin
def test_physics_alone_goes_the_way_of_the_environments() -> None:
    venv = RobotVecEnv([make("robots/CartPoleBalance-v0") for _ in range(2)])
    physics = Physics("robots/CartPoleBalance-v0", 2)
    actions = [venv.action_space.sample() for _ in range(20)]
    inputs = _inputs(venv, actions, seed=3)
    physics.venv.reset(seed=3)
    for one in inputs:
        physics.step(one)
    rows = [world.sensors.read() for world in physics.venv._worlds]
    assert rows == [world.sensors.read() for world in venv._worlds]
    venv.close()
    physics.venv.close()
