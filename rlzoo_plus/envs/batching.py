"""Whether environments can be stepped together in one pass, and from how many on it is faster."""

from __future__ import annotations

from typing import Any

from gymnasium import Env
from gymnasium.wrappers import OrderEnforcing, TimeLimit

from rlzoo_plus import accelerators
from rlzoo_plus.envs.episodes import RecordedEpisodes, ReproducibleResets, WarmupResets, layers_of
from rlzoo_plus.errors import ConfigError

# With fewer, one pass costs more than it saves: cart-poles, arms and walkers in fours were stepped
# at 0.7 to 1.0 of the rate of one by one, in eights at 0.9 to 1.2, in sixteens at 1.1 to 1.2.
ENOUGH = 8
# The batch itself does what these do at a step.
_PASSED_BY = (RecordedEpisodes, ReproducibleResets, OrderEnforcing)
_PASSED_BY_OF_OTHERS = (*_PASSED_BY, TimeLimit, WarmupResets)


def worlds_of(kind: type) -> Any:
    """Return what steps environments of a class in one pass, None if nothing does."""
    return getattr(kind, "batches", None) or accelerators.native_worlds(kind)


def enough_of(env: Env) -> int:
    """Return how many environments are stepped faster together, if they can be."""
    kind = type(env.unwrapped)
    worlds = worlds_of(kind)
    return ENOUGH if worlds is None else int(worlds.enough_of_kind(kind))


def is_robot_of_ours(env: Env) -> bool:
    """Return whether it is one; their base class needs PyBullet, and is imported with them."""
    return any(kind.__module__ == "robots.env" for kind in type(env.unwrapped).__mro__)


def batch_problem(env: Env) -> str | None:
    """Return why an environment from `make_env` cannot be stepped with others; None if it can."""
    robot = env.unwrapped
    is_ours = is_robot_of_ours(env)
    worlds = None if is_ours else worlds_of(type(robot))
    if not is_ours and worlds is None:
        return f"{type(robot).__name__} is none of the robots that are stepped together"
    if robot.render_mode == "human":
        return "a window shows one environment"
    for layer in layers_of(env):
        if type(layer) not in (_PASSED_BY if is_ours else _PASSED_BY_OF_OTHERS):
            return f"it is wrapped in {type(layer).__name__}"
    if worlds is not None:
        problem: str | None = worlds.why_not_known(env)
        return problem
    from robots.vec_env import why_not_batched

    if found := why_not_batched(robot):
        return found
    if isinstance(env, RecordedEpisodes) and not env.has_state:
        return f"{type(robot).__name__} cannot give its state exactly"
    return None


def require_batchable(env: Env, env_id: str) -> None:
    """Check that `vec_env=batched` is possible.

    Raises:
        ConfigError: The environment cannot be stepped with others.
    """
    problem = batch_problem(env)
    if problem is not None:
        raise ConfigError(
            f"vec_env=batched steps many robots in one pass, and {env_id} cannot be stepped so: "
            f"{problem}. Set vec_env=auto, which does so wherever it is possible."
        )
