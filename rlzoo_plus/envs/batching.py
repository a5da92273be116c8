"""May environments be stepped together, in one pass over arrays? Asked without torch."""

from __future__ import annotations

import gymnasium as gym
from gymnasium.wrappers import OrderEnforcing

from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.wrappers import ReproducibleResets
from rlzoo_plus.errors import ConfigError

# With fewer, one pass costs more than it saves: of cart-poles, arms and walkers, four were stepped
# at 0.7 to 1.0 of the rate of stepping them one by one, eight at 0.9 to 1.2, sixteen at 1.1 to 1.2.
ENOUGH = 8
# What these do at a step, the batch does itself.
_PASSED_BY = (RecordedEpisodes, ReproducibleResets, OrderEnforcing)


def batch_problem(env: gym.Env) -> str | None:
    """Return why an environment from `make_env` cannot be stepped with others; None if it can."""
    robot = env.unwrapped
    # Only with one of our own is PyBullet installed, which the module with the answer imports.
    if not any(kind.__module__ == "robots.env" for kind in type(robot).__mro__):
        return f"{type(robot).__name__} is none of the robots that come with rlzoo-plus"
    if robot.render_mode == "human":
        return "a window shows one environment"
    from robots.vec_env import why_not_batched

    return _wrapper_problem(env) or why_not_batched(robot) or _state_problem(env)


def _wrapper_problem(env: gym.Env) -> str | None:
    while isinstance(env, gym.Wrapper):
        if type(env) not in _PASSED_BY:
            return f"it is wrapped in {type(env).__name__}"
        env = env.env
    return None


def _state_problem(env: gym.Env) -> str | None:
    if isinstance(env, RecordedEpisodes) and not env.has_state:
        return f"{type(env.unwrapped).__name__} cannot give its state exactly"
    return None


def require_batchable(env: gym.Env, env_id: str) -> None:
    """Check that `vec_env=batched` can be fulfilled.

    Raises:
        ConfigError: The environment cannot be stepped with others.
    """
    problem = batch_problem(env)
    if problem is not None:
        raise ConfigError(
            f"vec_env=batched steps many robots of ours in one pass, and {env_id} cannot be "
            f"stepped so: {problem}. Set vec_env=auto, which does so wherever it is possible."
        )
