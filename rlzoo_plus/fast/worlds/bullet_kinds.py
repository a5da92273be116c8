"""Which environments of pybullet-envs-gymnasium can be stepped by the plugin, and by what class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
from gymnasium.wrappers import TimeLimit
from pybullet_envs_gymnasium import gym_locomotion_envs as walking
from pybullet_envs_gymnasium import gym_manipulator_envs as reaching
from pybullet_envs_gymnasium import gym_pendulum_envs as swinging
from pybullet_envs_gymnasium import robot_locomotors as walkers
from pybullet_envs_gymnasium import robot_manipulators as arms
from pybullet_envs_gymnasium import robot_pendula as pendulums

from rlzoo_plus.envs.episodes import WarmupResets
from rlzoo_plus.fast.worlds.bullet_batch import BulletBatch
from rlzoo_plus.fast.worlds.bullet_fixed import DoublePendulums, Pendulums, Pushers, Reachers
from rlzoo_plus.fast.worlds.bullet_walkers import Walkers
from rlzoo_plus.fast.worlds.world_batch import layer_of, steps_alike
from robots.engines.bullet.plugin import get_plugin
from robots.engines.compiling import PluginError, say

# The robot of each environment, and what steps many. HumanoidFlagrunHarder is none: with its
# cubes, it differs from itself now and then. So does Pusher, in one of some hundred episodes.
# Neither is Thrower, which differed from the original once and is no faster.
_KNOWN: dict[type, tuple[type, type[BulletBatch]]] = {
    walking.HopperBulletEnv: (walkers.Hopper, Walkers),
    walking.Walker2DBulletEnv: (walkers.Walker2D, Walkers),
    walking.HalfCheetahBulletEnv: (walkers.HalfCheetah, Walkers),
    walking.AntBulletEnv: (walkers.Ant, Walkers),
    walking.HumanoidBulletEnv: (walkers.Humanoid, Walkers),
    walking.HumanoidFlagrunBulletEnv: (walkers.HumanoidFlagrun, Walkers),
    swinging.InvertedPendulumBulletEnv: (pendulums.InvertedPendulum, Pendulums),
    swinging.InvertedPendulumSwingupBulletEnv: (pendulums.InvertedPendulumSwingup, Pendulums),
    swinging.InvertedDoublePendulumBulletEnv: (pendulums.InvertedDoublePendulum, DoublePendulums),
    reaching.ReacherBulletEnv: (arms.Reacher, Reachers),
    reaching.PusherBulletEnv: (arms.Pusher, Pushers),
}
_same: dict[type, bool] = {}


def batch_of(envs: Sequence[gym.Env]) -> Any:
    """Return what steps environments of one kind, in which `why_not_known` finds nothing."""
    return _KNOWN[type(envs[0].unwrapped)][1](envs)


def enough_of_kind(kind: type) -> int:
    """Return how many environments of a kind are stepped faster together, if they can be."""
    return _KNOWN[kind][1].enough if kind in _KNOWN else 1


def why_not_known(env: gym.Env) -> str | None:
    """Return why the plugin cannot step an environment from `make_env`; None if it can."""
    inner: Any = env.unwrapped
    kind = type(inner)
    if kind not in _KNOWN or type(inner.robot) is not _KNOWN[kind][0]:
        return f"{kind.__name__} is none of those that can be stepped together"
    if layer_of(env, TimeLimit) is None or layer_of(env, WarmupResets) is None:
        return "it has no time limit, or no warm-up reset"
    try:
        get_plugin()
        if kind not in _same:
            _same[kind] = steps_alike(lambda: WarmupResets(TimeLimit(kind(), 10), 1), batch_of)
    except PluginError as error:
        return str(error)
    if not _same[kind]:
        say(f"{kind.__name__} comes to other numbers.")
        return "the plugin steps it to other numbers than PyBullet does"
    return None
