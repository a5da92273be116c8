"""A policy as one torch module: raw observation in, action within its bounds out.

Normalisation, preprocessing, the actor's network and the final squashing or clipping are inside;
exploration, critics and NumPy are not. The order of operations and their precision are those of
`rlzoo_plus.agents.policy.Policy.predict` with `deterministic=True`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.ars.policies import ARSPolicy
from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.qrdqn.policies import QRDQNPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.dqn.policies import DQNPolicy
from torch import Tensor, nn

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.export.signature import Signature

if TYPE_CHECKING:
    from rlzoo_plus.agents.policy import Policy

_MASKED = -1e8


class PolicyGraph(nn.Module):
    """The whole policy; inputs and outputs are positional, as its signature lists them."""

    def __init__(self, policy: Policy, signature: Signature) -> None:
        super().__init__()
        self.signature = signature
        network, keys = policy.network, signature.keys
        is_own = _is_own_class(network)
        # A policy class of the user preprocesses by itself.
        scaled = None if is_own else _reading_part(network).normalize_images
        space = network.observation_space
        self.inputs = nn.ModuleList(
            _Input(space[key] if key else space, policy.normalizer, key, scaled)
            for key in keys or ("",)
        )
        self.actor = _OwnActor(network) if is_own else _actor_of(network)
        self.output = _Output(network, is_own=is_own)
        self.eval()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the action, and the new state of a recurrent policy."""
        keys, n_parts = self.signature.keys, self.signature.n_observations
        parts = [encode(x) for encode, x in zip(self.inputs, inputs[:n_parts], strict=True)]
        observation = dict(zip(keys, parts, strict=True)) if keys else parts[0]
        rest = inputs[n_parts:]
        if not self.signature.recurrent:
            return self.output(self.actor(observation), *rest)
        hidden, cell, start, *masks = rest
        raw, hidden, cell = self.actor(observation, hidden, cell, start)
        return self.output(raw, *masks), hidden, cell


class _Input(nn.Module):
    """Normalises one part of the observation and encodes it for the features extractor."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        space: spaces.Space,
        normalizer: ObservationNormalizer | None,
        key: str,
        scaled: bool | None,
    ) -> None:
        super().__init__()
        self.normalized = normalizer is not None and key in normalizer.mean
        self.is_encoded = scaled is not None
        self.scale = 255.0 if scaled and is_image_space(space) else None
        self.sizes: list[int] | None = None
        if isinstance(space, spaces.Discrete):
            self.sizes = [int(space.n)]
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = [int(n) for n in space.nvec.ravel()]
        if normalizer is not None and self.normalized:
            self.clip = normalizer.clip
            std = np.sqrt(normalizer.var[key] + normalizer.epsilon)
            self.register_buffer("mean", torch.as_tensor(normalizer.mean[key], dtype=torch.float64))
            self.register_buffer("std", torch.as_tensor(std, dtype=torch.float64))

    def forward(self, value: Tensor) -> Tensor:
        if self.normalized:
            scaled = (value.double() - self.mean) / self.std
            value = torch.clamp(scaled, -self.clip, self.clip).float()
        if not self.is_encoded:
            return value
        if self.sizes is not None:
            columns = value.reshape(-1, len(self.sizes)).long()
            hot = [columns[:, i : i + 1] == torch.arange(n) for i, n in enumerate(self.sizes)]
            return torch.cat(hot, dim=1).float()
        value = value.float()
        return value if self.scale is None else value / self.scale


class _OwnActor(nn.Module):
    """A policy class of the user, which chooses actions in its own way."""

    def __init__(self, network: BasePolicy) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Any) -> Tensor:
        # Distributions check arguments by branches, which a graph cannot hold.
        checks = torch.distributions.Distribution._validate_args
        torch.distributions.Distribution.set_default_validate_args(False)
        try:
            return self.network._predict(observation, deterministic=True)
        finally:
            torch.distributions.Distribution.set_default_validate_args(checks)


class _Recurrent(nn.Module):
    """One step of the actor's LSTM; the start of an episode clears the state."""

    def __init__(self, network: RecurrentActorCriticPolicy) -> None:
        super().__init__()
        self.extractor = network.pi_features_extractor
        self.lstm = network.lstm_actor
        self.layers = nn.Sequential(network.mlp_extractor.policy_net, network.action_net)

    def forward(
        self, observation: Any, hidden: Tensor, cell: Tensor, start: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        keep = (1.0 - start.float()).reshape(1, -1, 1)
        features = self.extractor(observation).unsqueeze(0)
        latent, (hidden, cell) = self.lstm(features, (keep * hidden, keep * cell))
        return self.layers(latent.squeeze(0)), hidden, cell


class _MeanOfQuantiles(nn.Module):
    def __init__(self, n_quantiles: int) -> None:
        super().__init__()
        self.n_quantiles = n_quantiles

    def forward(self, quantiles: Tensor) -> Tensor:
        return quantiles.unflatten(1, (self.n_quantiles, -1)).mean(dim=1)


class _Output(nn.Module):
    """Turns the output of the last layer into an action for `env.step`."""

    low: Tensor
    high: Tensor

    def __init__(self, network: BasePolicy, *, is_own: bool) -> None:
        super().__init__()
        space = network.action_space
        self.is_chosen = is_own
        self.is_box = isinstance(space, spaces.Box)
        self.is_binary = isinstance(space, spaces.MultiBinary)
        self.shape = tuple(space.shape or ())
        self.squashed = bool(network.squash_output)
        # The networks of TD3 and of augmented random search end in their own tanh.
        actor = getattr(network, "actor", None)
        is_deterministic = isinstance(actor, nn.Module) and not hasattr(actor, "latent_pi")
        ends_in_tanh = is_deterministic or isinstance(network, ARSPolicy)
        self.tanh = self.squashed and not is_own and not ends_in_tanh
        self.sizes: list[int] = []
        if isinstance(space, spaces.Box):
            self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
            self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = [int(n) for n in space.nvec]
        elif not isinstance(space, (spaces.Discrete, spaces.MultiBinary)):
            raise ConfigError(f"{type(space).__name__} actions cannot be exported.")

    def forward(self, raw: Tensor, masks: Tensor | None = None) -> Tensor:
        if self.is_box:
            action = (torch.tanh(raw) if self.tanh else raw).reshape(-1, *self.shape)
            if self.squashed:
                action = self.low + (0.5 * (action + 1.0) * (self.high - self.low))
            return torch.minimum(torch.maximum(action, self.low), self.high)
        if self.is_chosen:
            return raw.reshape(-1, *self.shape).long()
        if self.is_binary and masks is None:
            return torch.round(torch.sigmoid(raw)).long()
        # A masked binary choice has a score for no and one for yes.
        sizes = [2] * (raw.shape[1] // 2) if self.is_binary else self.sizes
        if masks is not None:
            raw = torch.where(masks, raw, torch.full_like(raw, _MASKED))
        if not sizes:
            return raw.argmax(dim=1)
        return torch.stack([part.argmax(dim=1) for part in raw.split(sizes, dim=1)], dim=1)


def _actor_of(network: BasePolicy) -> nn.Module:
    """Return the layers that decide, without critics and exploration.

    Raises:
        ConfigError: It is not known which layers of such a policy decide.
    """
    part = _reading_part(network)
    layers: tuple[Any, ...]
    if isinstance(network, RecurrentActorCriticPolicy):
        return _Recurrent(network)
    if isinstance(network, (ActorCriticPolicy, MaskableActorCriticPolicy)):
        layers = (network.mlp_extractor.policy_net, network.action_net)
        return nn.Sequential(network.pi_features_extractor, *layers)
    if isinstance(network, DQNPolicy):
        layers = (part.q_net,)
    elif isinstance(network, QRDQNPolicy):
        layers = (part.quantile_net, _MeanOfQuantiles(part.n_quantiles))
    elif isinstance(network, ARSPolicy):
        layers = (network.action_net,)
    elif hasattr(part, "mu"):
        layers = (part.latent_pi, part.mu) if hasattr(part, "latent_pi") else (part.mu,)
    else:
        raise ConfigError(
            f"a policy of type {type(network).__name__} cannot be exported to a graph: which of "
            "its layers decide is not known here. Use --format sb3."
        )
    return nn.Sequential(part.features_extractor, *layers)


def _is_own_class(network: BasePolicy) -> bool:
    """Tell whether the policy's class is the user's own, which may decide in another way."""
    known = (RecurrentActorCriticPolicy, MaskableActorCriticPolicy)
    is_policy = isinstance(network, BasePolicy) and not isinstance(network, known)
    package = type(network).__module__.partition(".")[0]
    return is_policy and package not in ("stable_baselines3", "sb3_contrib")


def _reading_part(network: BasePolicy) -> Any:
    """Return the part of a policy that owns the deciding features extractor."""
    parts = (getattr(network, name, None) for name in ("actor", "q_net", "quantile_net"))
    return next((part for part in parts if isinstance(part, nn.Module)), network)
