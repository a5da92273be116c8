"""Builds an agent as training would, without its environments, and measures its size."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_train_env, with_one_env
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.experience.mirrored import require_mirror
from rlzoo_plus.export.sb3_format import spaces_only

# Rows of the buffer that is built; one row has the same size in a large buffer.
_ROWS = 64
# Adam keeps two moments of each weight.
_WITH_OPTIMIZER = 3


@dataclass(frozen=True)
class AgentFacts:
    """The memory that an agent needs."""

    weights_bytes: int  # Its networks with their optimizers [bytes]
    row_bytes: int  # One row of the replay buffer, for all environments [bytes]; 0 without one
    rollout_bytes: int  # Its rollout buffer [bytes]; 0 if it has none
    episode_steps: int | None  # Longest possible episode, None if not known

    def replay_bytes(self, config: RunConfig) -> int:
        """Return the size of the replay buffer at the end of a run [bytes]."""
        size = int(config.algo.hyperparams.get("buffer_size", 0))
        # Rows that are never written take no memory.
        return self.row_bytes * (min(size, config.n_timesteps) // config.n_envs)


# By what decides them: a search builds hundreds of agents for one environment.
_facts: dict[str, AgentFacts] = {}
_environments: dict[str, tuple[spaces.Space[Any], spaces.Space[Any], int | None]] = {}


def agent_facts(config: RunConfig) -> AgentFacts:
    """Build the agent of a configuration, on the CPU and with a small replay buffer.

    Raises:
        ConfigError: It cannot be built.
    """
    key = config.model_dump_json(include={"env", "algo", "network", "n_envs", "normalize"})
    if key not in _facts:
        try:
            # Rules of our own cover these warnings; others are about the stand-in environments.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _facts[key] = _measure(config)
        except ConfigError:
            raise
        # Any other error would end the training in the same place.
        except Exception as error:
            raise ConfigError(
                f"{config.algo.name} cannot be built: {type(error).__name__}: {one_line(error)}"
            ) from error
    return _facts[key]


def _measure(config: RunConfig) -> AgentFacts:
    observations, actions, episode_steps = _environment(config)
    values = dict(config.algo.hyperparams)
    if "buffer_size" in values:
        values["buffer_size"] = min(int(values["buffer_size"]), _ROWS * config.n_envs)
    algo = config.algo.model_copy(update={"hyperparams": values, "symmetry": None})
    small = config.model_copy(update={"algo": algo, "device": "cpu"})
    agent = make_agent(small, spaces_only(observations, actions, config.n_envs), config.seed)
    replay = getattr(agent, "replay_buffer", None)
    n_rows = getattr(replay, "buffer_size", 0)
    rows = [array for array in _arrays(replay) if array.ndim and len(array) == n_rows]
    rollout = _arrays(getattr(agent, "rollout_buffer", None))
    weights = sum(p.numel() * p.element_size() for p in agent.policy.parameters())
    return AgentFacts(
        weights_bytes=_WITH_OPTIMIZER * weights,
        row_bytes=sum(array.nbytes // n_rows for array in rows),
        rollout_bytes=sum(array.nbytes for array in rollout),
        episode_steps=episode_steps,
    )


def _environment(config: RunConfig) -> tuple[spaces.Space[Any], spaces.Space[Any], int | None]:
    """Return the spaces behind all wrappers, and the longest episode.

    Raises:
        ConfigError: There is no mirror, or none that fits, where `algo.symmetry` needs one.
    """
    parts: Any = {"env": True, "vec_env": True, "normalize": True, "algo": {"symmetry"}}
    key = config.model_dump_json(include=parts)
    if key not in _environments:
        venv = make_train_env(with_one_env(config), 0)
        try:
            if config.algo.symmetry is not None:
                require_mirror(venv, venv.observation_space, venv.action_space)
            limit = longest_episode(config)
            _environments[key] = (venv.observation_space, venv.action_space, limit)
        finally:
            venv.close()
    return _environments[key]


def _arrays(buffer: Any) -> Iterator[np.ndarray]:
    for value in vars(buffer).values() if buffer is not None else ():
        parts = value.values() if isinstance(value, dict) else (value,)
        yield from (part for part in parts if isinstance(part, np.ndarray))
