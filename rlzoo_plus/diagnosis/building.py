"""Builds an agent as training would, without its environments, and says how large it is."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_train_env, with_one_env
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.errors import ConfigError

# Rows of the buffer that is built; the size of one is the same in a large buffer.
_ROWS = 64
# Adam keeps two moments of each weight.
_WITH_OPTIMIZER = 3


@dataclass(frozen=True)
class AgentFacts:
    """What an agent needs.

    Attributes:
        weights_bytes: Its networks with their optimizers [bytes].
        row_bytes: A row of its replay buffer, one transition of each environment [bytes]; 0 if it
            has none.
        rollout_bytes: Its rollout buffer [bytes]; 0 if it has none.
        episode_steps: The longest episode that the environment allows, None if that is not known.
    """

    weights_bytes: int
    row_bytes: int
    rollout_bytes: int
    episode_steps: int | None

    def replay_bytes(self, config: RunConfig) -> int:
        """Return what the replay buffer holds at the end of a run [bytes]."""
        size = int(config.algo.hyperparams.get("buffer_size", 0))
        # Rows that are never written take no memory.
        return self.row_bytes * (min(size, config.n_timesteps) // config.n_envs)


def agent_facts(config: RunConfig) -> AgentFacts:
    """Build the agent of a configuration, on the CPU and with a small replay buffer.

    Raises:
        ConfigError: It cannot be built.
    """
    key = config.model_dump_json(include={"env", "algo", "network", "n_envs", "normalize"})
    if key not in _facts:
        try:
            with warnings.catch_warnings():
                # What the library warns of here is told by our own rules, or is not so: the
                # environments are stand-ins.
                warnings.simplefilter("ignore")
                _facts[key] = _measure(config)
        except ConfigError:
            raise
        # Whatever it is, it would end the training in the same place.
        except Exception as error:
            reason = (str(error).splitlines() or ["no reason given"])[0]
            raise ConfigError(
                f"{config.algo.name} cannot be built: {type(error).__name__}: {reason}"
            ) from error
    return _facts[key]


def _measure(config: RunConfig) -> AgentFacts:
    chain = _look_at(config)
    venv = _SpacesOnly(config.n_envs, chain.observation_space, chain.action_space)
    agent = make_agent(_with_small_buffer(config), venv, config.seed)
    weights = sum(p.numel() * p.element_size() for p in agent.policy.parameters())
    replay = list(_arrays(getattr(agent, "replay_buffer", None)))
    rows = [array for array in replay if array.ndim and len(array) == _buffer_rows(agent)]
    rollout = _arrays(getattr(agent, "rollout_buffer", None))
    return AgentFacts(
        weights_bytes=_WITH_OPTIMIZER * weights,
        row_bytes=sum(array.nbytes // len(array) for array in rows),
        rollout_bytes=sum(array.nbytes for array in rollout),
        episode_steps=chain.episode_steps,
    )


def _with_small_buffer(config: RunConfig) -> RunConfig:
    values = dict(config.algo.hyperparams)
    if "buffer_size" in values:
        values["buffer_size"] = min(int(values["buffer_size"]), _ROWS * config.n_envs)
    algo = config.algo.model_copy(update={"hyperparams": values})
    return config.model_copy(update={"algo": algo, "device": "cpu"})


@dataclass(frozen=True)
class _Chain:
    """Environments behind all their wrappers, as the agent sees them."""

    observation_space: spaces.Space
    action_space: spaces.Space
    episode_steps: int | None


# By what they are made from: a search builds hundreds of agents for one environment.
_chains: dict[str, _Chain] = {}
_facts: dict[str, AgentFacts] = {}


def _look_at(config: RunConfig) -> _Chain:
    key = config.model_dump_json(include={"env", "vec_env", "normalize"})
    if key not in _chains:
        venv = make_train_env(with_one_env(config), 0)
        try:
            limit = longest_episode(config)
            _chains[key] = _Chain(venv.observation_space, venv.action_space, limit)
        finally:
            venv.close()
    return _chains[key]


def _buffer_rows(agent: Any) -> int:
    return int(getattr(agent.replay_buffer, "buffer_size", 0))


def _arrays(buffer: Any) -> Iterator[np.ndarray]:
    for value in vars(buffer).values() if buffer is not None else ():
        parts = value.values() if isinstance(value, dict) else (value,)
        yield from (part for part in parts if isinstance(part, np.ndarray))


class _SpacesOnly(VecEnv):
    """Stands in for environments while an agent is built: it has their number and spaces."""

    def reset(self) -> Any:
        """Be never called."""
        raise NotImplementedError

    def step_async(self, actions: np.ndarray) -> None:
        """Be never called."""
        raise NotImplementedError

    def step_wait(self) -> Any:
        """Be never called."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return None for each environment."""
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Forget it."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Return None for each environment."""
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Say yes: the real chain has what the library would add."""
        return [True] * self.num_envs
