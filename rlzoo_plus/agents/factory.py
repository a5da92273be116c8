"""From a run's configuration to a ready Stable-Baselines3 algorithm, and to its policy."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from gymnasium import spaces

from rlzoo_plus import accelerators
from rlzoo_plus.agents.allocation import AllocationLimit, NetworkTooLargeError
from rlzoo_plus.agents.critic_observation import require_entries, with_critic_observation
from rlzoo_plus.agents.devices import choose_device
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.agents.layer_norm import with_layer_norm
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.catalog import (
    ACTION_NOISES,
    BLOCKS,
    DEMONSTRATIONS,
    GROUP_POLICY,
    MIRRORED,
    NOVELTY,
    POLICIES,
    PRIORITIZED,
    REPLAY_BUFFERS,
    AlgorithmSpec,
    Family,
    get_algorithm,
)
from rlzoo_plus.config.exploration import BONUS
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import NetworkConfig, RunConfig
from rlzoo_plus.config.signatures import missing_package, with_sequences
from rlzoo_plus.envs.fit import GIB, policy_kind, total_memory_bytes
from rlzoo_plus.envs.single import longest_episode
from rlzoo_plus.errors import HELP, ConfigError, unknown_name

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
_GIVEN_BY_SB3 = {"self", "observation_space", "action_space", "lr_schedule", "use_sde"}


def make_agent(config: RunConfig, venv: VecEnv, seed: int) -> BaseAlgorithm:
    """Build the algorithm with its networks, buffers and exploration, for environments `venv`.

    `seed` seeds Python, NumPy, torch and the action space.

    Raises:
        ConfigError: A value is refused by the algorithm or its policy.
    """
    accelerators.import_compiler_late()
    spec = get_algorithm(config.algo.name)
    algorithm = algorithm_class(spec)
    policy_class = _policy_class(config, spec, venv.observation_space)
    _check_n_steps(config, spec, venv.observation_space)
    arguments = {
        **_algorithm_arguments(config, spec, venv.action_space),
        "policy_kwargs": policy_kwargs(config, spec, policy_class),
        "seed": seed,
        "verbose": 0,
    }
    backend = _backend(spec)
    is_hindsight = hasattr(arguments.get("replay_buffer_class"), "truncate_last_trajectory")
    kind: Any = with_iteration_hook(algorithm, *backend.mixins(config))
    try:
        with AllocationLimit.of_machine():
            arguments["device"] = choose_device(
                config,
                venv,
                algorithm,
                arguments,
                lambda: make_policy(config, venv.observation_space, venv.action_space),
            )
            agent: Any = kind(policy_class, venv, **arguments)
    except (NetworkTooLargeError, MemoryError) as error:
        raise ConfigError(_too_large(config, error)) from error
    except ConfigError:
        raise
    except _REFUSALS as error:
        log.debug("why the algorithm cannot be built:", exc_info=True)
        raise ConfigError(f"{spec.name} refuses its configuration: {one_line(error)}") from error
    _check_gsde(agent, config)
    if config.data.path is not None or config.teacher.run is not None:
        import_module(DEMONSTRATIONS).attach(agent, config)
    if config.algo.symmetry:
        import_module(MIRRORED).attach(agent, config.algo)
    if config.exploration.kind == BONUS:
        import_module(NOVELTY).attach(agent)
    backend.attach_accelerators(agent, config, spec)
    if is_hindsight:
        agent.has_episode = False
        agent.longest = functools.partial(longest_episode, config)
    return cast("BaseAlgorithm", agent)


def make_policy(
    config: RunConfig, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> BasePolicy:
    """Build an untrained policy for inference, on the CPU, without an environment."""
    spec = get_algorithm(config.algo.name)
    policy_class = _policy_class(config, spec, observation_space)
    kwargs = policy_kwargs(config, spec, policy_class)
    if config.algo.hyperparams.get("use_sde"):
        kwargs["use_sde"] = True
    if spec.family is not Family.EVOLUTION:
        kwargs["lr_schedule"] = lambda _: 0.0
    policy = policy_class(observation_space, action_space, **kwargs)
    _backend(spec).plan(policy)
    policy.set_training_mode(False)
    return policy


def _backend(spec: AlgorithmSpec) -> Any:
    """Return the module of an algorithm's backend: `mixins`, `plan`, `parts` and so on."""
    return import_module(f"rlzoo_plus.agents.{spec.backend}_backend")


def algorithm_class(spec: AlgorithmSpec) -> type[BaseAlgorithm]:
    """Import an algorithm's class.

    Raises:
        ConfigError: The package that it comes from is not installed.
    """
    module, name = spec.entry_point.split(":")
    root = module.partition(".")[0]
    if root not in sys.modules and find_spec(root) is None:
        raise missing_package(root)
    return cast("type[BaseAlgorithm]", getattr(import_module(module), name))


def _too_large(config: RunConfig, error: Exception) -> str:
    """Return an error that names the keys that decide how large an agent is."""
    if isinstance(error, MemoryError):
        sizes = {"algo.hyperparams.buffer_size": config.algo.hyperparams.get("buffer_size")}
    else:
        values = config.network.model_dump()
        values |= {f"lstm.{key}": value for key, value in values["lstm"].items()}
        keys = (
            *("net_arch", "lstm.hidden_size", "lstm.n_layers", "n_critics", "n_quantiles"),
            *("features_extractor_kwargs", "policy_kwargs"),
        )
        sizes = {f"network.{key}": values[key] for key in keys}
    shown = ", ".join(f"{key}={value}" for key, value in sizes.items() if value)
    total = (total_memory_bytes() or 0) / GIB
    return (
        f"{shown or config.algo.name}: the agent needs more memory than the {total:.1f} GiB of "
        "this machine. Make it smaller."
    )


def _check_n_steps(config: RunConfig, spec: AlgorithmSpec, observed: spaces.Space[Any]) -> None:
    """Refuse returns of several steps where Stable-Baselines3 has no replay buffer for them."""
    n_steps = config.algo.hyperparams.get("n_steps", 1)
    is_plain = spec.family is Family.OFF_POLICY and not spec.recurrent
    is_plain = is_plain and config.algo.replay_buffer is None
    if is_plain and n_steps != 1 and isinstance(observed, spaces.Dict):
        raise ConfigError(
            f"algo.hyperparams.n_steps={n_steps}: Dict observations have no returns of several "
            "steps. Set algo.hyperparams.n_steps=1, which tuned values may set otherwise."
        )


def _check_gsde(agent: Any, config: RunConfig) -> None:
    """Refuse gSDE, which tuned values can ask for, with a policy that acts without it."""
    if not getattr(agent, "use_sde", False):
        return
    with_gsde = import_module("stable_baselines3.common.distributions")
    actor = getattr(agent.policy, "actor", None) or agent.policy
    acts_by = getattr(actor, "action_dist", None)
    if acts_by is not None and not isinstance(acts_by, with_gsde.StateDependentNoiseDistribution):
        raise ConfigError(
            f"network.policy={config.network.policy}: it acts by {type(acts_by).__name__}, without "
            "gSDE. Set algo.hyperparams.use_sde=false, which tuned values may set otherwise."
        )


def _algorithm_arguments(
    config: RunConfig, spec: AlgorithmSpec, action_space: spaces.Space[Any]
) -> dict[str, Any]:
    algo = config.algo
    arguments = dict(algo.hyperparams)
    for key in spec.schedules:
        if isinstance(arguments.get(key), str):
            arguments[key] = parse_schedule(arguments[key], f"algo.hyperparams.{key}")
    if isinstance(arguments.get("train_freq"), list):
        arguments["train_freq"] = tuple(arguments["train_freq"])
    noise, shape = algo.action_noise, action_space.shape or ()
    if noise is not None:
        options: dict[str, Any] = {}
        if noise.type == "ou":
            options = {"theta": noise.theta, "dt": noise.dt}
        elif noise.type == "pink":
            options = {"length": longest_episode(config)}
        arguments["action_noise"] = ACTION_NOISES.load(noise.type)(
            np.zeros(shape), np.full(shape, noise.std), **options
        )
    buffer = algo.replay_buffer or spec.replay_buffer
    if buffer is not None:
        arguments["replay_buffer_class"] = REPLAY_BUFFERS.load(buffer)
    if config.env.groups is not None and arguments.get("normalize_advantage"):
        arguments["rollout_buffer_class"] = import_module(GROUP_POLICY).GroupRolloutBuffer
    if buffer in PRIORITIZED:
        returns = {"n_steps": arguments.pop("n_steps", 1), "gamma": arguments.get("gamma", 0.99)}
        arguments["replay_buffer_kwargs"] = {
            **returns,
            **(arguments.get("replay_buffer_kwargs") or {}),
        }
    return arguments


def _policy_class(
    config: RunConfig, spec: AlgorithmSpec, space: spaces.Space[Any]
) -> type[BasePolicy]:
    """Return the class of the policy for these observations, or of those of `env.groups`."""
    aliases = algorithm_class(spec).policy_aliases
    class_for = functools.partial(policy_class_of, config.network, spec, aliases)
    if config.env.groups is None:
        return class_for(space)
    made: type[BasePolicy] = import_module(GROUP_POLICY).policy_class(
        config.env.groups, space, class_for
    )
    return made


def policy_class_of(
    network: NetworkConfig,
    spec: AlgorithmSpec,
    aliases: Mapping[str, type[BasePolicy]],
    space: spaces.Space[Any],
) -> type[BasePolicy]:
    """Return the class of the policy: the user's, or one of `aliases`, the algorithm's own.

    Raises:
        ConfigError: The algorithm has no policy for these observations, or cannot train with it.
    """
    if POLICIES.is_own(network.policy):
        found, base = POLICIES.load(network.policy), next(iter(aliases.values()))
        if not issubclass(found, base):
            raise ConfigError(
                f"network.policy={network.policy} does not inherit from {base.__name__}, which "
                f"{spec.name} needs. Inherit from it, or use another algorithm."
            )
    else:
        found = aliases[_chosen_alias(network, spec, aliases, space)]
    found = cast("type[BasePolicy]", _backend(spec).policy_class(found, spec, space))
    if network.critic_observation:
        keys = tuple(network.critic_observation)
        require_entries(keys, space)
        found = with_critic_observation(found, keys)
    if network.layer_norm or network.dropout:
        found = with_layer_norm(found, network.layer_norm, network.dropout)
    if network.blocks:
        found = import_module(BLOCKS).with_blocks(found, network.blocks)
    return cast("type[BasePolicy]", found)


def _chosen_alias(
    network: NetworkConfig, spec: AlgorithmSpec, known: Iterable[str], space: spaces.Space[Any]
) -> str:
    names = {kind: alias for kind, alias in spec.policies if alias in known}
    kind = policy_kind(space) if network.policy == "auto" else network.policy
    if kind not in names:
        raise ConfigError(
            f"{spec.name} has no {kind} policy for {type(space).__name__} observations; it has "
            f"{', '.join(names)}. Use another algorithm, or a wrapper such as "
            "env.wrappers=[flatten_observation]."
        )
    _check_reads("policy", kind, {"multi_input": "Dict", "cnn": "image"}, space)
    extractors = {"combined": "Dict", "nature_cnn": "image"}
    _check_reads("features_extractor", network.features_extractor, extractors, space)
    return names[kind]


def _check_reads(
    key: str, value: str | None, needs: dict[str, str], space: spaces.Space[Any]
) -> None:
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
    kwargs |= _backend(spec).parts(network)
    values = network.model_dump()
    kwargs |= {name: values[name] for name in _SAME_NAME if values[name] is not None}
    lstm = {_LSTM[k]: v for k, v in values["lstm"].items() if v is not None}
    if spec.family is Family.OFF_POLICY:
        # Of these, actor and critic always have an LSTM each.
        lstm = {k: v for k, v in lstm.items() if k not in ("shared_lstm", "enable_critic_lstm")}
    kwargs |= lstm
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
    family = get_algorithm(spec.clones or spec.name).family
    critic = "vf" if family is Family.ON_POLICY else "qf"
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
