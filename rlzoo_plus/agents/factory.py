"""From a run's configuration to a ready Stable-Baselines3 algorithm."""

from __future__ import annotations

import logging
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.agents.allocation import AllocationLimit, NetworkTooLargeError
from rlzoo_plus.agents.freezing import freeze, with_frozen_parts
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.agents.networks import policy_class_of, policy_kwargs
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.catalog import (
    ACTION_NOISES,
    REPLAY_BUFFERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import AlgoConfig, NoiseConfig, RunConfig
from rlzoo_plus.envs.memory import GIB, total_memory_bytes
from rlzoo_plus.errors import ConfigError

# What the library's constructors raise for a value that they do not take.
_REFUSALS = (
    *(TypeError, ValueError, AssertionError, RuntimeError, OverflowError),
    *(LookupError, AttributeError),
)
log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.noise import ActionNoise
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.vec_env import VecEnv


def make_agent(config: RunConfig, venv: VecEnv, seed: int) -> BaseAlgorithm:
    """Build the algorithm with its networks, buffers and exploration.

    Args:
        config: The run.
        venv: The training environments.
        seed: Seeds Python, NumPy, torch and the action space.

    Raises:
        ConfigError: A value is refused by the algorithm or its policy.
    """
    spec = get_algorithm(config.algo.name)
    algorithm = algorithm_class(spec)
    policy_class = policy_class_of(
        config.network, spec, algorithm.policy_aliases, venv.observation_space
    )
    kwargs = policy_kwargs(config, spec, policy_class)
    arguments = {
        **_hyperparams(config.algo, spec),
        **_off_policy_parts(config.algo, spec, venv.action_space),
        "policy_kwargs": kwargs,
        "seed": seed,
        "device": config.device,
        "verbose": 0,
    }
    kind = with_frozen_parts(algorithm) if config.freeze else algorithm
    try:
        with AllocationLimit.of_machine():
            agent = with_iteration_hook(kind)(policy_class, venv, **arguments)
    except (NetworkTooLargeError, MemoryError) as error:
        raise ConfigError(_too_large(config, error)) from error
    except ConfigError:
        raise
    except _REFUSALS as error:
        log.debug("why the algorithm cannot be built:", exc_info=True)
        raise ConfigError(f"{spec.name} refuses its configuration: {one_line(error)}") from error
    _warn_of_what_does_not_learn(agent.policy)
    if config.freeze:
        freeze(agent, config.freeze)
    return agent


def _warn_of_what_does_not_learn(policy: BasePolicy) -> None:
    """Name what a policy class of a user's made after its optimizer."""
    optimizer = getattr(policy, "optimizer", None)
    if optimizer is None or hasattr(policy, "actor") or hasattr(policy, "q_net"):
        return  # it has several, and networks that follow others
    learned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    left = [n for n, p in policy.named_parameters() if p.requires_grad and id(p) not in learned]
    if left:
        log.warning(
            "%s: %s is not in its optimizer and does not learn. Make the optimizer after it, in "
            "_build()", type(policy).__name__, ", ".join(left)
        )  # fmt: skip


def make_policy(
    config: RunConfig, observation_space: spaces.Space, action_space: spaces.Space
) -> BasePolicy:
    """Build an untrained policy for inference, on the CPU, without an environment."""
    spec = get_algorithm(config.algo.name)
    aliases = algorithm_class(spec).policy_aliases
    policy_class = policy_class_of(config.network, spec, aliases, observation_space)
    kwargs = policy_kwargs(config, spec, policy_class)
    if config.algo.hyperparams.get("use_sde"):
        kwargs["use_sde"] = True
    if spec.family is not Family.EVOLUTION:
        kwargs["lr_schedule"] = _no_learning
    policy = policy_class(observation_space, action_space, **kwargs)
    policy.set_training_mode(False)
    return policy


def algorithm_class(spec: AlgorithmSpec) -> type[BaseAlgorithm]:
    """Import an algorithm's class."""
    module, name = spec.entry_point.split(":")
    return getattr(import_module(module), name)


def check_device(name: str) -> None:
    """Check that a device is there.

    Raises:
        ConfigError: torch does not see it.
    """
    import torch

    if name == "mps" and not torch.backends.mps.is_available():
        raise ConfigError("device=mps: torch sees no Apple GPU here. Use device=cpu.")
    if name.startswith("cuda"):
        index = int(name.partition(":")[2] or 0)
        if not torch.cuda.is_available() or index >= torch.cuda.device_count():
            raise ConfigError(
                f"device={name}: torch sees {torch.cuda.device_count()} CUDA devices here. "
                "Use device=cpu, or install a CUDA build of torch."
            )


def thread_policy(config: RunConfig) -> tuple[int, str]:
    """Return the number of torch threads and the reason for it.

    On-policy updates on small batches lose by a second thread; the larger gradient steps of an
    off-policy run gain by it, as long as it has the machine to itself.
    """
    if config.num_threads != "auto":
        return int(config.num_threads), "as num_threads says"
    spec = get_algorithm(config.algo.name)
    if spec.family is not Family.OFF_POLICY:
        return 1, f"{spec.name} is fastest with one; set num_threads to change it"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > (cores or 1):
        # Not chosen by load: the number of threads changes the last bits of a result.
        log.warning("this machine is busy: num_threads=1 may be many times as fast")
    return cores or 1, f"all cores for a lone {spec.name} run; set num_threads=1 beside others"


def _too_large(config: RunConfig, error: Exception) -> str:
    """Name what decides how large an agent is, as it is set."""
    values = {f"network.{key}": value for key, value in config.network.model_dump().items()}
    values |= {f"network.lstm.{key}": value for key, value in values.pop("network.lstm").items()}
    keys = ("net_arch", "lstm.hidden_size", "lstm.n_layers", "n_critics", "n_quantiles")
    keys += ("features_extractor_kwargs", "policy_kwargs")
    sizes = {f"network.{key}": values[f"network.{key}"] for key in keys}
    if isinstance(error, MemoryError):
        sizes = {"algo.hyperparams.buffer_size": config.algo.hyperparams.get("buffer_size")}
    shown = ", ".join(f"{key}={value}" for key, value in sizes.items() if value)
    total = (total_memory_bytes() or 0) / GIB
    return (
        f"{shown or config.algo.name}: the agent needs more memory than the {total:.1f} GiB of "
        "this machine. Make it smaller."
    )


def _hyperparams(algo: AlgoConfig, spec: AlgorithmSpec) -> dict[str, Any]:
    arguments = dict(algo.hyperparams)
    for key in spec.schedules:
        if isinstance(arguments.get(key), str):
            arguments[key] = parse_schedule(arguments[key], f"algo.hyperparams.{key}")
    if isinstance(arguments.get("train_freq"), list):
        arguments["train_freq"] = tuple(arguments["train_freq"])
    return arguments


def _off_policy_parts(
    algo: AlgoConfig, spec: AlgorithmSpec, action_space: spaces.Space
) -> dict[str, Any]:
    parts: dict[str, Any] = {}
    if algo.action_noise is not None:
        parts["action_noise"] = _action_noise(algo.action_noise, action_space)
    buffer = algo.replay_buffer or spec.replay_buffer
    if buffer is not None:
        parts["replay_buffer_class"] = REPLAY_BUFFERS.load(buffer)
    return parts


def _action_noise(noise: NoiseConfig, action_space: spaces.Space) -> ActionNoise:
    shape = action_space.shape or ()
    mean, std = np.zeros(shape), np.full(shape, noise.std)
    noise_class = ACTION_NOISES.load(noise.type)
    if noise.type == "ou":
        return noise_class(mean, std, theta=noise.theta, dt=noise.dt)
    return noise_class(mean, std)


def _no_learning(_progress_remaining: float) -> float:
    return 0.0
