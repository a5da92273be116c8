"""Entries of a dictionary observation that the critic alone sees (an asymmetric actor-critic).

Pinto et al., "Asymmetric Actor Critic for Image-Based Robot Learning" (RSS 2018): what is known in
the simulation alone helps to judge actions, and the policy acts without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.torch_layers import MlpExtractor

from rlzoo_plus.errors import HELP, ConfigError, unknown_name


def acting_space(network: Any) -> spaces.Space[Any]:
    """Return the space of what a network acts on: all that it observes but the critic's entries."""
    whole: spaces.Space[Any] = network.observation_space
    hidden = getattr(network, "critic_keys", ())
    if not hidden or not isinstance(whole, spaces.Dict):
        return whole
    # An OrderedDict, because a plain one would be sorted.
    return spaces.Dict(OrderedDict((k, s) for k, s in whole.spaces.items() if k not in hidden))


def acting_part(network: Any, observation: Any) -> Any:
    """Return the entries that a network acts on; an array is the only one that there is."""
    if not getattr(network, "critic_keys", ()):
        return observation
    keys = list(acting_space(network).spaces)  # type: ignore[attr-defined]
    if isinstance(observation, Mapping):
        return {key: observation[key] for key in keys}
    return {keys[0]: observation} if len(keys) == 1 else observation


def require_entries(keys: tuple[str, ...], space: spaces.Space[Any]) -> None:
    """Check that observations have the entries of the critic, and others.

    Raises:
        ConfigError: They do not.
    """
    named = f"network.critic_observation={list(keys)}"
    if not isinstance(space, spaces.Dict):
        raise ConfigError(
            f"{named} names entries of Dict observations, and the environment has "
            f"{type(space).__name__} observations. Leave it out; environments of robots/ have one "
            "with env.kwargs.privileged=true."
        )
    for key in keys:
        if key not in space.spaces:
            raise ConfigError(unknown_name("entry of the observation", key, space.spaces, HELP))
    if len(set(keys)) == len(space.spaces):
        raise ConfigError(f"{named} leaves the policy nothing to see. Leave an entry out.")


@cache
def with_critic_observation(kind: type[BasePolicy], keys: tuple[str, ...]) -> type[BasePolicy]:
    """Return a subclass of a policy whose actor has features of its own, without these entries."""
    methods = {"make_actor": _make_actor} if hasattr(kind, "make_actor") else {
        "_build_mlp_extractor": _build_mlp_extractor
    }  # fmt: skip
    made = {"__module__": kind.__module__, "__doc__": kind.__doc__, "critic_keys": keys}
    parts = {name: method(kind) for name, method in methods.items()}
    return type(f"Asymmetric{kind.__name__}", (kind,), made | parts)


def _features(policy: Any) -> Any:
    """Make the features extractor of an actor."""
    return policy.features_extractor_class(acting_space(policy), **policy.features_extractor_kwargs)


def _make_actor(kind: Any) -> Any:
    """Return the method that makes the actor of an off-policy algorithm."""

    def made(self: Any, features_extractor: Any = None) -> Any:
        del features_extractor  # which critics share, with all entries
        return kind.make_actor(self, _features(self))

    return made


def _build_mlp_extractor(kind: Any) -> Any:
    """Return the method that makes the hidden layers of actor and critic of PPO and its like."""

    def made(self: Any) -> None:
        # What was made so far reads all entries: it is the critic's.
        self.vf_features_extractor = self.features_extractor
        self.features_extractor = self.pi_features_extractor = _features(self)
        self.share_features_extractor = False
        self.features_dim = self.features_extractor.features_dim
        kind._build_mlp_extractor(self)
        width = self.vf_features_extractor.features_dim
        layers = MlpExtractor(width, self.net_arch, self.activation_fn, self.device)
        self.mlp_extractor.value_net = layers.value_net

    return made
