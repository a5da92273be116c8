"""Whether environments can be stepped together in one pass, and from how many on it is faster."""

from __future__ import annotations

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
_PASSED_BY_OF_PYBULLET = (*_PASSED_BY, TimeLimit, WarmupResets)
_OF_PYBULLET = "pybullet_envs_gymnasium.env_bases"


def enough_of(env: Env) -> int:
    """Return how many environments are stepped faster together, if they can be."""
    if not _is_of_pybullet(env):
        return ENOUGH
    worlds = accelerators.native_worlds()
    return ENOUGH if worlds is None else int(worlds.enough_of_kind(type(env.unwrapped)))


def _is_of_pybullet(env: Env) -> bool:
    return any(kind.__module__ == _OF_PYBULLET for kind in type(env.unwrapped).__mro__)


def batch_problem(env: Env) -> str | None:
    """Return why an environment from `make_env` cannot be stepped with others; None if it can."""
    robot = env.unwrapped
    # Only these need PyBullet, which the modules with the answer import.
    is_ours = any(kind.__module__ == "robots.env" for kind in type(robot).__mro__)
    are_of_pybullet = _is_of_pybullet(env)
    if not is_ours and not are_of_pybullet:
        return f"{type(robot).__name__} is none of the robots that are stepped together"
    if robot.render_mode == "human":
        return "a window shows one environment"
    for layer in layers_of(env):
        if type(layer) not in (_PASSED_BY_OF_PYBULLET if are_of_pybullet else _PASSED_BY):
            return f"it is wrapped in {type(layer).__name__}"
    if are_of_pybullet:
        worlds = accelerators.native_worlds()
        if worlds is None:
            return "rlzoo_plus.fast, which steps them natively, is not used here"
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
            f"vec_env=batched steps many robots of ours in one pass, and {env_id} cannot be "
            f"stepped so: {problem}. Set vec_env=auto, which does so wherever it is possible."
        )
