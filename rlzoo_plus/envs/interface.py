"""Does an environment keep to Gymnasium's interface? Asked with one reset and one step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import where_raised

_OLD = (
    "Written for the old gym? https://gymnasium.farama.org/introduction/migration_guide says what "
    "to change"
)
_SEED = 20_000


def check_spaces(env: gym.Env, env_id: str) -> None:
    """Check that an environment says what it shows and takes, before anything wraps it.

    Raises:
        ConfigError: A space is missing, or of another package.
    """
    for name in ("observation_space", "action_space"):
        space = getattr(env.unwrapped, name, None)
        if space is None:
            raise ConfigError(f"env.id={env_id}: it has no {name}. Set it in its __init__().")
        if not isinstance(space, spaces.Space):
            kind = f"{type(space).__module__}.{type(space).__name__}"
            raise ConfigError(
                f"env.id={env_id}: its {name} is a {kind}, not one of gymnasium.spaces. {_OLD}."
            )


def check_interface(env: gym.Env, env_id: str) -> None:
    """Reset and step an environment, first without its wrappers, then with them.

    Raises:
        ConfigError: What it returns is no Gymnasium environment's, or it breaks.
    """
    bare = env.unwrapped
    with _told(env_id, "reset(seed=...)"):
        _check_reset(bare.reset(seed=_SEED), env_id)
    with _told(env_id, "step()"):
        bare.action_space.seed(_SEED)
        _check_step(bare.step(sample_action(bare)), env_id)
    with _told(env_id, "reset(seed=...) behind its wrappers"):
        observation, _ = env.reset(seed=_SEED)
    check_shape(observation, env.observation_space, f"env.id={env_id}")
    with _told(env_id, "step() behind its wrappers"):
        env.action_space.seed(_SEED)
        env.step(sample_action(env))


def sample_action(env: gym.Env) -> np.ndarray:
    """Return a random action; the first allowed one if the environment masks some."""
    try:
        masks = env.get_wrapper_attr("action_masks")()
    except AttributeError:
        return env.action_space.sample()
    if isinstance(env.action_space, spaces.Discrete):
        return np.int64(np.flatnonzero(masks)[0])
    # One mask for each part, one after the other; of yes and no for each switch.
    counts = getattr(env.action_space, "nvec", np.full(env.action_space.shape, 2)).ravel()
    parts = np.split(np.concatenate([*map(np.ravel, masks)]), np.cumsum(counts)[:-1])
    chosen = np.array([np.flatnonzero(part)[0] for part in parts], env.action_space.dtype)
    return chosen.reshape(env.action_space.shape)


@contextlib.contextmanager
def _told(env_id: str, call: str) -> Iterator[None]:
    """Tell in one line what a user's environment raises; one of ours keeps its traceback."""
    try:
        with native_output_hidden():
            yield
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:
        if env_id.startswith("robots/"):
            raise
        hint = f" {_OLD}." if "unexpected keyword argument 'seed'" in str(error) else ""
        raise ConfigError(
            f"env.id={env_id}: its {call} raises {where_raised(error)}.{hint}"
        ) from error


def _check_reset(returned: Any, env_id: str) -> None:
    if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict):
        return
    raise ConfigError(
        f"env.id={env_id}: its reset() returns {_kind(returned)}, not (observation, info). {_OLD}."
    )


def _check_step(returned: Any, env_id: str) -> None:
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise ConfigError(
            f"env.id={env_id}: its step() returns {_kind(returned)}, not (observation, reward, "
            f"terminated, truncated, info). {_OLD}."
        )
    try:
        float(returned[1])
    except (TypeError, ValueError):
        raise ConfigError(
            f"env.id={env_id}: the reward of its step() is {_kind(returned[1])}. Return a number."
        ) from None


def check_shape(observation: Any, space: spaces.Space, where: str) -> None:
    """Check that an observation has the keys and shapes that its space says.

    Raises:
        ConfigError: It has others; the text begins with `where`.
    """
    if isinstance(space, spaces.Dict):
        keys = set(observation) if isinstance(observation, dict) else {_kind(observation)}
        if keys != set(space.spaces):
            raise ConfigError(
                f"{where}: its observation has the keys {sorted(keys)}, and its "
                f"observation_space has {sorted(space.spaces)}. Let them agree."
            )
        for key, part in space.spaces.items():
            check_shape(observation[key], part, where)
    elif space.shape is not None and np.shape(observation) != space.shape:
        raise ConfigError(
            f"{where}: its observation is {_kind(observation)}, and its observation_space "
            f"is of shape {space.shape}. Let them agree."
        )


def _kind(value: Any) -> str:
    if isinstance(value, tuple):
        return f"{len(value)} values"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
