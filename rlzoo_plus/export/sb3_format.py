"""The Stable-Baselines3 zip of a policy, with `vecnormalize.pkl` beside it; for exchange.

Both hold pickles, as their readers expect; only this module writes them. To check a zip that has
just been written, the stock `load` opens it, since that is what its user will do; the statistics
are read back as data.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecNormalize
from torch.nn.utils import parameters_to_vector

from rlzoo_plus.agents.factory import algorithm_class, policy_class_of, policy_kwargs
from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.config.catalog import AlgorithmSpec, Family, get_algorithm
from rlzoo_plus.config.schedules import is_function, parse_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.parity import Runner
from rlzoo_plus.export.sb3_archive import parse_statistics
from rlzoo_plus.export.signature import Signature


class _SpacesOnly(gym.Env):
    """An environment that is never stepped: an algorithm asks it for its spaces."""

    def __init__(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space


def spaces_only(
    observations: spaces.Space[Any], actions: spaces.Space[Any], n_envs: int = 1
) -> VecEnv:
    """Return environments to build an agent for, which have spaces and cannot be stepped.

    Any other attribute of theirs is None, for an algorithm that asks for one.
    """

    class Unstepped(DummyVecEnv):
        def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
            return [None] * self.num_envs

        def env_method(self, method_name: str, *_: Any, **__: Any) -> list[Any]:
            return [None] * self.num_envs

    return Unstepped([lambda: _SpacesOnly(observations, actions)] * n_envs)


def write_sb3(policy: Policy, config: RunConfig, step: int) -> tuple[bytes, bytes | None]:
    """Return the zip that the algorithm's own `load` opens, and the statistics if there are any.

    Optimizer and entropy coefficient are fresh, since a policy does not keep them; schedules are
    fixed at their first value, and hindsight replay becomes a plain buffer, so that the zip can be
    opened without this package and without the environment.

    Raises:
        ConfigError: The algorithm refuses to be built.
    """
    venv = spaces_only(policy.observation_space, policy.action_space)
    agent = _stock_agent(policy, config, venv)
    agent.policy.load_state_dict(policy.network.state_dict())
    agent.num_timesteps = step
    if hasattr(agent, "weights"):
        # Augmented random search keeps a second copy, which its `load` prefers.
        agent.weights = parameters_to_vector(agent.policy.parameters()).detach().clone()
    buffer = io.BytesIO()
    agent.save(buffer)
    if policy.normalizer is None:
        return buffer.getvalue(), None
    gamma = float(config.algo.hyperparams.get("gamma", 0.99))
    return buffer.getvalue(), pickle.dumps(_stock_statistics(policy.normalizer, venv, gamma))


def sb3_runner(
    data: bytes, statistics: bytes | None, config: RunConfig, policy: Policy, signature: Signature
) -> Runner:
    """Open the bytes that `write_sb3` returned with the stock classes, as their user would.

    Raises:
        ConfigError: The statistics are not as they are written here.
    """
    agent = algorithm_class(_stock_spec(config)).load(io.BytesIO(data), device="cpu")
    normalize: VecNormalize | None = None
    if statistics is not None:
        found = parse_statistics(statistics)
        if found.normalizer is None or found.norm_reward:
            raise ConfigError(
                "vecnormalize.pkl does not normalise observations, or normalises rewards."
            )
        venv = spaces_only(policy.observation_space, policy.action_space)
        normalize = _stock_statistics(found.normalizer, venv)

    def predict(observation: Any, *arguments: Any, **masks: Any) -> Any:
        if normalize is not None:
            observation = normalize.normalize_obs(observation)
        return agent.predict(observation, *arguments, **masks)

    def run(**inputs: np.ndarray) -> list[np.ndarray]:
        return signature.predict(predict, inputs)

    return run


def _stock_spec(config: RunConfig) -> AlgorithmSpec:
    """Return the specification of the algorithm whose agent holds the policy."""
    spec = get_algorithm(config.algo.name)
    return get_algorithm(spec.clones) if spec.clones else spec


def _stock_agent(policy: Policy, config: RunConfig, venv: VecEnv) -> Any:
    spec = _stock_spec(config)
    for key in ("layer_norm", "dropout", "blocks", "critic_observation"):
        if value := getattr(config.network, key):
            raise ConfigError(
                f"network.{key}={value}: Stable-Baselines3 has no such network. Use --format onnx "
                "or torchscript."
            )
    algorithm = algorithm_class(spec)
    arguments = dict(config.algo.hyperparams) if spec.name == config.algo.name else {}
    for key in spec.schedules:
        if is_function(arguments.get(key)):
            # It only decides how the agent would go on learning.
            arguments[key] = 1e-4
        elif isinstance(arguments.get(key), str):
            schedule = parse_schedule(arguments[key], f"algo.hyperparams.{key}")
            arguments[key] = schedule(1.0) if callable(schedule) else schedule
    if isinstance(arguments.get("train_freq"), list):
        arguments["train_freq"] = tuple(arguments["train_freq"])
    arguments.pop("replay_buffer_kwargs", None)
    size = arguments.get("buffer_size")
    if spec.family is Family.OFF_POLICY:
        # Not filled here, so not allocated; the zip's reader allocates it.
        arguments["buffer_size"] = 1
    policy_class = policy_class_of(
        config.network, spec, algorithm.policy_aliases, policy.observation_space
    )
    kwargs = policy_kwargs(config, spec, policy_class)
    try:
        agent: Any = algorithm(
            policy_class, venv, policy_kwargs=kwargs, seed=config.seed, device="cpu", **arguments
        )
    except ConfigError:
        raise
    except (TypeError, ValueError, AssertionError) as error:
        raise ConfigError(f"{spec.name} refuses its configuration: {error}") from error
    if size is not None and spec.family is Family.OFF_POLICY:
        agent.buffer_size = size
    return agent


def _stock_statistics(
    normalizer: ObservationNormalizer, venv: VecEnv, gamma: float = 0.99
) -> VecNormalize:
    is_dict = isinstance(venv.observation_space, spaces.Dict)
    normalize = VecNormalize(
        venv,
        # The policy keeps no statistics of rewards, and these must not drift.
        training=False,
        norm_reward=False,
        clip_obs=normalizer.clip,
        epsilon=normalizer.epsilon,
        gamma=gamma,
        norm_obs_keys=list(normalizer.mean) if is_dict else None,
    )
    for key in normalizer.mean:
        rms: Any = normalize.obs_rms
        rms = rms[key] if is_dict else rms
        rms.mean, rms.var = normalizer.mean[key].copy(), normalizer.var[key].copy()
        rms.count = normalizer.count[key]
    return normalize
