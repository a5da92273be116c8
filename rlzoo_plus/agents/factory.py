"""From a run's configuration to a ready Stable-Baselines3 algorithm, and to its policy."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from torch.overrides import TorchFunctionMode

from rlzoo_plus.agents.fast.updates import FastUpdates
from rlzoo_plus.agents.hooks import KeepsFrozen, freeze, with_iteration_hook
from rlzoo_plus.agents.recorded.actions import RecordedActions, RecordsActions
from rlzoo_plus.agents.recorded.rollouts import RecordedRollouts, RecordsRollouts
from rlzoo_plus.agents.recorded.updates import RecordedUpdates, RecordsUpdates
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.catalog import (
    ACTION_NOISES,
    ACTIVATIONS,
    FEATURES_EXTRACTORS,
    OPTIMIZERS,
    POLICIES,
    REPLAY_BUFFERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import AlgoConfig, NetworkConfig, RunConfig
from rlzoo_plus.config.signatures import missing_package, with_sequences
from rlzoo_plus.envs.fit import GIB, policy_kind, total_memory_bytes
from rlzoo_plus.errors import HELP, ConfigError, unknown_name
from rlzoo_plus.startup import import_compiler_late

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.policies import BasePolicy
    from stable_baselines3.common.vec_env import VecEnv

log = logging.getLogger(__name__)
# What the library's constructors raise for a value that they do not take.
_REFUSALS = (
    *(TypeError, ValueError, AssertionError, RuntimeError, OverflowError),
    *(LookupError, AttributeError),
)
# Keys of `network` that the policy class knows under the same name.
_SAME_NAME = (
    *("log_std_init", "ortho_init", "full_std", "use_expln", "squash_output"),
    *("share_features_extractor", "features_extractor_kwargs", "normalize_images"),
    *("n_critics", "n_quantiles", "optimizer_kwargs"),
)
_LSTM = {"hidden_size": "lstm_hidden_size", "n_layers": "n_lstm_layers"}
_LSTM |= {"shared": "shared_lstm", "enable_critic": "enable_critic_lstm"}
# Orthogonal initialisation works on copies of a layer, and target networks begin as copies.
_COPIES = 8
# A weight in training: the number, its gradient and two moments, four bytes each.
_BYTES_OF_A_WEIGHT = 16
# Networks without weights of their own, e.g. features of the observation.
_FREE_TENSORS, _FREE_ELEMENTS = 1000, 2**20
_FACTORIES: frozenset[Callable[..., Any]] = frozenset(
    (
        *(torch.empty, torch.empty_strided, torch.zeros, torch.ones, torch.full),
        *(torch.rand, torch.randn, torch.eye, torch.arange, torch.linspace),
    )
)
_GIVEN_BY_SB3 = {"self", "observation_space", "action_space", "lr_schedule", "use_sde"}


def make_agent(config: RunConfig, venv: VecEnv, seed: int) -> BaseAlgorithm:
    """Build the algorithm with its networks, buffers and exploration, for environments `venv`.

    `seed` seeds Python, NumPy, torch and the action space.

    Raises:
        ConfigError: A value is refused by the algorithm or its policy.
    """
    import_compiler_late()
    spec = get_algorithm(config.algo.name)
    algorithm = algorithm_class(spec)
    policy_class = policy_class_of(
        config.network, spec, algorithm.policy_aliases, venv.observation_space
    )
    arguments = {
        **_algorithm_arguments(config.algo, spec, venv.action_space),
        "policy_kwargs": policy_kwargs(config, spec, policy_class),
        "seed": seed,
        "device": config.device,
        "verbose": 0,
    }
    kind = with_iteration_hook(algorithm, *_mixins(config, spec))
    try:
        with AllocationLimit.of_machine():
            agent = kind(policy_class, venv, **arguments)
    except (NetworkTooLargeError, MemoryError) as error:
        raise ConfigError(_too_large(config, error)) from error
    except ConfigError:
        raise
    except _REFUSALS as error:
        log.debug("why the algorithm cannot be built:", exc_info=True)
        raise ConfigError(f"{spec.name} refuses its configuration: {one_line(error)}") from error
    if spec.backend == "jax":
        _say_what_has_no_effect(config, spec)
        return agent
    _warn_of_what_does_not_learn(agent.policy)
    if config.freeze:
        freeze(agent, config.freeze)
    if config.fast:
        agent.recorded = FastUpdates(records=config.record_updates)
    elif config.record_updates:
        agent.recorded = RecordedUpdates()
    if config.record_updates:
        on_policy = spec.family is Family.ON_POLICY
        agent.rollouts = RecordedRollouts() if on_policy else None
        agent.actions = RecordedActions() if spec.family is Family.OFF_POLICY else None
    return agent


def _mixins(config: RunConfig, spec: AlgorithmSpec) -> list[type]:
    """Return what an algorithm gets besides the hook between its iterations."""
    if spec.backend == "jax":
        from rlzoo_plus.agents.jax_agents import JaxAgent

        return [JaxAgent]
    frozen: list[type] = [KeepsFrozen] if config.freeze else []
    return [*frozen, RecordsRollouts, RecordsActions, RecordsUpdates]


def _say_what_has_no_effect(config: RunConfig, spec: AlgorithmSpec) -> None:
    for key in ("fast", "fast_math"):
        if getattr(config, key):
            log.warning("%s=true has no effect: %s computes with JAX", key, spec.name)
    if config.record_updates:
        log.info("updates are not recorded: %s compiles them with JAX", spec.name)


def _warn_of_what_does_not_learn(policy: BasePolicy) -> None:
    """Name the layers that a user's policy class made after its optimizer."""
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
        kwargs["lr_schedule"] = lambda _: 0.0
    policy = policy_class(observation_space, action_space, **kwargs)
    if spec.backend == "jax":
        policy.plan()
    policy.set_training_mode(False)
    return policy


def algorithm_class(spec: AlgorithmSpec) -> type[BaseAlgorithm]:
    """Import an algorithm's class.

    Raises:
        ConfigError: The package that it comes from is not installed.
    """
    module, name = spec.entry_point.split(":")
    root = module.partition(".")[0]
    if root not in sys.modules and find_spec(root) is None:
        raise missing_package(root)
    return getattr(import_module(module), name)


def check_device(name: str) -> None:
    """Check that a device is there.

    Raises:
        ConfigError: torch does not see it.
    """
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

    On-policy updates on small batches are slower with a second thread; the larger gradient steps
    of an off-policy run are faster, as long as it has the machine to itself.
    """
    spec = get_algorithm(config.algo.name)
    if spec.backend == "jax":
        return 1, f"{spec.name} computes with JAX, which uses one whatever num_threads says"
    if config.num_threads != "auto":
        return int(config.num_threads), "as num_threads says"
    if spec.family is not Family.OFF_POLICY:
        return 1, f"{spec.name} is fastest with one; set num_threads to change it"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # Not chosen by load: the number of threads changes the last bits of a result.
    return cores or 1, f"all cores for a lone {spec.name} run; set num_threads=1 beside others"


def _too_large(config: RunConfig, error: Exception) -> str:
    """Return an error that names the keys that decide how large an agent is."""
    if isinstance(error, MemoryError):
        sizes = {"algo.hyperparams.buffer_size": config.algo.hyperparams.get("buffer_size")}
    else:
        values = config.network.model_dump()
        values |= {f"lstm.{key}": value for key, value in values["lstm"].items()}
        keys = ("net_arch", "lstm.hidden_size", "lstm.n_layers", "n_critics", "n_quantiles")
        keys += ("features_extractor_kwargs", "policy_kwargs")
        sizes = {f"network.{key}": values[key] for key in keys}
    shown = ", ".join(f"{key}={value}" for key, value in sizes.items() if value)
    total = (total_memory_bytes() or 0) / GIB
    return (
        f"{shown or config.algo.name}: the agent needs more memory than the {total:.1f} GiB of "
        "this machine. Make it smaller."
    )


def _algorithm_arguments(
    algo: AlgoConfig, spec: AlgorithmSpec, action_space: spaces.Space
) -> dict[str, Any]:
    arguments = dict(algo.hyperparams)
    for key in spec.schedules:
        if isinstance(arguments.get(key), str):
            arguments[key] = parse_schedule(arguments[key], f"algo.hyperparams.{key}")
    if isinstance(arguments.get("train_freq"), list):
        arguments["train_freq"] = tuple(arguments["train_freq"])
    noise, shape = algo.action_noise, action_space.shape or ()
    if noise is not None:
        options = {"theta": noise.theta, "dt": noise.dt} if noise.type == "ou" else {}
        arguments["action_noise"] = ACTION_NOISES.load(noise.type)(
            np.zeros(shape), np.full(shape, noise.std), **options
        )
    buffer = algo.replay_buffer or spec.replay_buffer
    if buffer is not None:
        arguments["replay_buffer_class"] = REPLAY_BUFFERS.load(buffer)
    return arguments


def policy_class_of(
    network: NetworkConfig,
    spec: AlgorithmSpec,
    aliases: Mapping[str, type[BasePolicy]],
    space: spaces.Space,
) -> type[BasePolicy]:
    """Return the class of the policy: the user's, or one of `aliases`, the algorithm's own.

    Raises:
        ConfigError: The algorithm has no policy for these observations, or cannot train with it.
    """
    found = _chosen_policy(network, spec, aliases, space)
    if spec.backend == "jax":
        from rlzoo_plus.agents.jax_agents import with_arrays

        _check_joined(spec, space)
        return with_arrays(found)
    return found


def _check_joined(spec: AlgorithmSpec, space: spaces.Space) -> None:
    """Check that the entries of dictionary observations are vectors, which sbx joins to one."""
    for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise ConfigError(
                f"{spec.name} joins the entries of Dict observations to one vector, and {key} is "
                f"{type(part).__name__} of shape {part.shape}. Use a wrapper such as "
                "env.wrappers=[flatten_observation]."
            )


def _chosen_policy(
    network: NetworkConfig,
    spec: AlgorithmSpec,
    aliases: Mapping[str, type[BasePolicy]],
    space: spaces.Space,
) -> type[BasePolicy]:
    if POLICIES.is_own(network.policy):
        found, base = POLICIES.load(network.policy), next(iter(aliases.values()))
        if not issubclass(found, base):
            raise ConfigError(
                f"network.policy={network.policy} does not inherit from {base.__name__}, which "
                f"{spec.name} needs. Inherit from it, or use another algorithm."
            )
        return found
    known = {kind: alias for kind, alias in spec.policies if alias in aliases}
    kind = policy_kind(space) if network.policy == "auto" else network.policy
    if kind not in known:
        raise ConfigError(
            f"{spec.name} has no {kind} policy for {type(space).__name__} observations; it has "
            f"{', '.join(known)}. Use another algorithm, or a wrapper such as "
            "env.wrappers=[flatten_observation]."
        )
    _check_reads("policy", kind, {"multi_input": "Dict", "cnn": "image"}, space)
    extractors = {"combined": "Dict", "nature_cnn": "image"}
    _check_reads("features_extractor", network.features_extractor, extractors, space)
    return aliases[known[kind]]


def _check_reads(key: str, value: str | None, needs: dict[str, str], space: spaces.Space) -> None:
    """Check that a part of the network that was chosen by hand can read the observations."""
    need = needs.get(value or "")
    is_image = isinstance(space, spaces.Box) and len(space.shape) == 3
    if not {"Dict": isinstance(space, spaces.Dict), "image": is_image, None: True}[need]:
        raise ConfigError(
            f"network.{key}={value} reads {need} observations, and the environment has "
            f"{type(space).__name__} observations of shape {space.shape}. Leave it out: "
            f"network.{key}={'auto' if key == 'policy' else 'null'}."
        )


def policy_kwargs(config: RunConfig, spec: AlgorithmSpec, policy_class: type) -> dict[str, Any]:
    """Return the policy's constructor arguments; what is null in the configuration is left out.

    Raises:
        ConfigError: The policy class, or its features extractor, does not take one of them.
    """
    network = config.network
    kwargs: dict[str, Any] = dict(spec.policy_defaults)
    if network.net_arch is not None:
        kwargs["net_arch"] = _net_arch(network.net_arch, spec)
    if spec.backend == "jax":
        from rlzoo_plus.agents.jax_agents import jax_parts

        kwargs |= jax_parts(network)
    else:
        for key, value, registry in (
            ("activation_fn", network.activation, ACTIVATIONS),
            ("optimizer_class", network.optimizer, OPTIMIZERS),
            ("features_extractor_class", network.features_extractor, FEATURES_EXTRACTORS),
        ):
            if value is not None:
                kwargs[key] = registry.load(value)
    values = network.model_dump()
    kwargs |= {name: values[name] for name in _SAME_NAME if values[name] is not None}
    kwargs |= {_LSTM[k]: v for k, v in values["lstm"].items() if v is not None}
    kwargs |= network.policy_kwargs
    for part in ("optimizer", "features_extractor"):
        default = inspect.signature(policy_class).parameters.get(f"{part}_class")
        kind = kwargs.get(f"{part}_class", None if default is None else default.default)
        arguments = kwargs.get(f"{part}_kwargs")
        if arguments and kind is not None:
            kwargs[f"{part}_kwargs"] = with_sequences(kind, arguments)
    kwargs = with_sequences(policy_class, kwargs)
    _check_arguments(f"argument of {spec.name}'s policy", kwargs, policy_class)
    extractor = kwargs.get("features_extractor_class")
    # In an untrusted bundle, it can be anything.
    if isinstance(extractor, type):
        given = kwargs.get("features_extractor_kwargs") or {}
        what = f"argument of network.features_extractor={network.features_extractor}"
        _check_arguments(what, given, extractor)
        stack = config.env.frame_stack
        if stack > 1 and "n_frames" in inspect.signature(extractor).parameters:
            kwargs["features_extractor_kwargs"] = {"n_frames": stack, **given}
    return kwargs


def _net_arch(arch: Any, spec: AlgorithmSpec) -> Any:
    if not isinstance(arch, dict):
        return list(arch)
    critic = "vf" if spec.family is Family.ON_POLICY else "qf"
    names = {"actor": "pi", "critic": critic, "vf": critic, "qf": critic}
    return {names.get(part, part): list(sizes) for part, sizes in arch.items()}


def _check_arguments(what: str, kwargs: dict[str, Any], kind: type) -> None:
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    known = set(parameters) - _GIVEN_BY_SB3
    for name in kwargs:
        if name not in known:
            raise ConfigError(f"network: {unknown_name(what, name, known, HELP)}")


class NetworkTooLargeError(Exception):
    """A network needs more parameters than it may have."""


class AllocationLimit(TorchFunctionMode):
    """Context in which torch makes no more tensors than are allowed.

    Raises:
        NetworkTooLargeError: Before the tensor that would be too many is allocated.
    """

    def __init__(self, tensors: int, elements: int) -> None:
        super().__init__()
        self._tensors, self._elements = tensors, elements

    @classmethod
    def of_weights(cls, weights: Mapping[str, np.ndarray]) -> AllocationLimit:
        """Allow what these weights can fill."""
        elements = sum(value.size for value in weights.values())
        return cls(_FREE_TENSORS + _COPIES * len(weights), _FREE_ELEMENTS + _COPIES * elements)

    @classmethod
    def of_machine(cls) -> AllocationLimit:
        """Allow networks that can be trained in the memory of this machine."""
        total = total_memory_bytes()
        elements = sys.maxsize if total is None else total // _BYTES_OF_A_WEIGHT
        return cls(sys.maxsize, _FREE_ELEMENTS + elements)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Count what a factory is about to make, then let it."""
        kwargs = kwargs or {}
        if func in _FACTORIES:
            try:
                # The meta device has shapes without memory.
                planned = func(*args, **{**kwargs, "device": "meta", "out": None})
            except (RuntimeError, TypeError, OverflowError) as error:
                raise NetworkTooLargeError("it describes a layer of no possible size") from error
            self._tensors -= 1
            self._elements -= planned.numel()
            if self._tensors < 0 or self._elements < 0:
                raise NetworkTooLargeError("it describes a far larger network")
        return func(*args, **kwargs)
