"""From `network.*` to the arguments of a Stable-Baselines3 policy class, and to the class."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from rlzoo_plus.config.catalog import (
    ACTIVATIONS,
    FEATURES_EXTRACTORS,
    OPTIMIZERS,
    POLICIES,
    AlgorithmSpec,
    Family,
)
from rlzoo_plus.config.schema import NetworkConfig, RunConfig
from rlzoo_plus.config.signatures import with_sequences
from rlzoo_plus.envs.checks import policy_kind
from rlzoo_plus.errors import HELP, ConfigError, unknown_name

if TYPE_CHECKING:
    from stable_baselines3.common.policies import BasePolicy

_SAME_NAME = (
    "log_std_init",
    "ortho_init",
    "full_std",
    "use_expln",
    "squash_output",
    "share_features_extractor",
    "features_extractor_kwargs",
    "normalize_images",
    "n_critics",
    "n_quantiles",
    "optimizer_kwargs",
)
_LSTM = {
    "hidden_size": "lstm_hidden_size",
    "n_layers": "n_lstm_layers",
    "shared": "shared_lstm",
    "enable_critic": "enable_critic_lstm",
}
_GIVEN_BY_SB3 = {"self", "observation_space", "action_space", "lr_schedule", "use_sde"}


def policy_class_of(
    network: NetworkConfig,
    spec: AlgorithmSpec,
    aliases: Mapping[str, type[BasePolicy]],
    space: spaces.Space,
) -> type[BasePolicy]:
    """Return the class of the policy: the algorithm's own for the observations, or the user's.

    Args:
        network: The network.
        spec: The algorithm.
        aliases: Its own policy classes, `policy_aliases`.
        space: The observations.

    Raises:
        ConfigError: The algorithm has no policy for these observations, or cannot train with it.
    """
    if not POLICIES.is_own(network.policy):
        there = {kind: alias for kind, alias in spec.policies if alias in aliases}
        return aliases[there[_policy_kind_of(network, spec, there, space)]]
    found, base = POLICIES.load(network.policy), next(iter(aliases.values()))
    if not issubclass(found, base):
        raise ConfigError(
            f"network.policy={network.policy} does not inherit from {base.__name__}, which "
            f"{spec.name} needs. Inherit from it, or use another algorithm."
        )
    return found


def _policy_kind_of(
    network: NetworkConfig, spec: AlgorithmSpec, there: Mapping[str, str], space: spaces.Space
) -> str:
    kind = policy_kind(space) if network.policy == "auto" else network.policy
    if kind not in there:
        raise ConfigError(
            f"{spec.name} has no {kind} policy for {type(space).__name__} observations; it has "
            f"{', '.join(there)}. Use another algorithm, or a wrapper such as "
            "env.wrappers=[flatten_observation]."
        )
    _check_kind(kind, network, space)
    return kind


def _check_kind(kind: str, network: NetworkConfig, space: spaces.Space) -> None:
    """Check that a network that was chosen by hand can read the observations."""
    shown = f"{type(space).__name__} observations of shape {space.shape}"
    extractor = network.features_extractor
    for key, value, needs in (
        ("policy", kind, {"multi_input": "Dict", "cnn": "image"}.get(kind)),
        (
            "features_extractor",
            extractor,
            {"combined": "Dict", "nature_cnn": "image"}.get(extractor or ""),
        ),
    ):
        is_image = isinstance(space, spaces.Box) and len(space.shape) == 3
        fits = {"Dict": isinstance(space, spaces.Dict), "image": is_image, None: True}[needs]
        if not fits:
            raise ConfigError(
                f"network.{key}={value} reads {needs} observations, and the environment has "
                f"{shown}. Leave it out: network.{key}={'auto' if key == 'policy' else 'null'}."
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
    if network.activation is not None:
        kwargs["activation_fn"] = ACTIVATIONS.load(network.activation)
    if network.optimizer is not None:
        kwargs["optimizer_class"] = OPTIMIZERS.load(network.optimizer)
    if network.features_extractor is not None:
        kwargs["features_extractor_class"] = FEATURES_EXTRACTORS.load(network.features_extractor)
    values = network.model_dump()
    kwargs |= {name: values[name] for name in _SAME_NAME if values[name] is not None}
    kwargs |= {_LSTM[k]: v for k, v in values["lstm"].items() if v is not None}
    kwargs |= network.policy_kwargs
    for part in ("optimizer", "features_extractor"):
        arguments, kind = kwargs.get(f"{part}_kwargs"), _class_of(part, kwargs, policy_class)
        if arguments and kind is not None:
            kwargs[f"{part}_kwargs"] = with_sequences(kind, arguments)
    kwargs = with_sequences(policy_class, kwargs)
    _check(f"argument of {spec.name}'s policy", kwargs, policy_class)
    _set_extractor_arguments(kwargs, network.features_extractor, config.env.frame_stack)
    return kwargs


def _set_extractor_arguments(kwargs: dict[str, Any], name: str | None, n_frames: int) -> None:
    """Check a features extractor's arguments; one with `n_frames` is told the stacked frames."""
    extractor, given = (
        kwargs.get("features_extractor_class"),
        kwargs.get("features_extractor_kwargs"),
    )
    # Of a stranger's bundle, it can be anything.
    if not isinstance(extractor, type):
        return
    _check(f"argument of network.features_extractor={name}", given or {}, extractor)
    if n_frames > 1 and "n_frames" in inspect.signature(extractor).parameters:
        kwargs["features_extractor_kwargs"] = {"n_frames": n_frames, **(given or {})}


def _net_arch(arch: Any, spec: AlgorithmSpec) -> Any:
    if not isinstance(arch, dict):
        return list(arch)
    critic = "vf" if spec.family is Family.ON_POLICY else "qf"
    names = {"actor": "pi", "critic": critic, "vf": critic, "qf": critic}
    return {names.get(part, part): list(sizes) for part, sizes in arch.items()}


def _class_of(part: str, kwargs: dict[str, Any], policy_class: type) -> Any:
    """Return the class of a policy's optimizer or features extractor, None if it isn't known."""
    name = f"{part}_class"
    default = inspect.signature(policy_class).parameters.get(name)
    return kwargs.get(name, None if default is None else default.default)


def _check(what: str, kwargs: dict[str, Any], kind: type) -> None:
    parameters = inspect.signature(kind.__init__).parameters  # type: ignore[misc]
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return
    known = set(parameters) - _GIVEN_BY_SB3
    for name in kwargs:
        if name not in known:
            raise ConfigError(f"network: {unknown_name(what, name, known, HELP)}")
