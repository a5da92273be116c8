"""What the buffers of a run take at most, against the memory that the machine has."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from gymnasium import spaces

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError

GIB = 2**30
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Networks, and rollouts with normalisation, hold single precision.
_FLOAT = 4
# Reward, end and time-out of a transition; value, advantage, return and the like of a rollout's.
_PER_TRANSITION, _PER_ROLLOUT_STEP = 12, 24


def total_memory_bytes() -> int | None:
    """Return the memory of this machine or container [bytes], None if that is not known."""
    known = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        known.append(int(_CONTAINER_LIMIT.read_text()))
    return min(known, default=None)


def check_memory(
    config: RunConfig, observation_space: spaces.Space, action_space: spaces.Space
) -> None:
    """Refuse a run whose buffers outgrow the machine before it ends.

    Args:
        config: The run.
        observation_space: Of one environment, without stacked frames.
        action_space: Of one environment.

    Raises:
        ConfigError: One does; the text names the key, and the most that it can be.
    """
    total = total_memory_bytes()
    if total is None:
        return
    for key, count, bytes_each in _needs(config, observation_space, action_space):
        if count * bytes_each > total:
            raise ConfigError(
                f"{key} needs {count * bytes_each / GIB:,.1f} GiB of memory ({count:,} times "
                f"{bytes_each:,} bytes), and this machine has {total / GIB:,.1f} GiB. Lower it."
            )


def _needs(
    config: RunConfig, observation_space: spaces.Space, action_space: spaces.Space
) -> Iterator[tuple[str, int, int]]:
    """Yield what takes memory: the key with its value, how many, and the bytes of each."""
    values, family = config.algo.hyperparams, get_algorithm(config.algo.name).family
    stack = config.env.frame_stack
    observation = stack * _bytes(observation_space)
    action = _bytes(action_space)
    where = "algo.hyperparams"
    yield f"env.frame_stack={stack}", config.n_envs, 2 * observation
    if family is Family.OFF_POLICY:
        size, batch = int(values.get("buffer_size", 0)), int(values.get("batch_size", 0))
        stored = 1 if values.get("optimize_memory_usage") else 2
        row = stored * observation + action + _PER_TRANSITION
        # Rows that are never written take no memory.
        yield f"{where}.buffer_size={size}", min(size, config.n_timesteps), row
        yield f"{where}.batch_size={batch}", batch, 2 * observation + action + _PER_TRANSITION
    elif family is Family.ON_POLICY:
        steps = int(values.get("n_steps", 0))
        name = f"{where}.n_steps={steps} with n_envs={config.n_envs}"
        yield name, steps * config.n_envs, observation + action + _PER_ROLLOUT_STEP


def _bytes(space: spaces.Space) -> int:
    """Return what one of a space's elements takes in a buffer [bytes]."""
    if isinstance(space, spaces.Dict):
        return sum(_bytes(part) for part in space.spaces.values())
    size = math.prod(space.shape or (1,))
    return size * (space.dtype.itemsize if space.dtype is not None else _FLOAT)
