"""A policy as one torch module: raw observation in, action within its bounds out.

Normalisation, preprocessing, the actor's network and the last squashing or clipping are inside;
exploration, critics and NumPy are not. The order of operations and their precision are those of
`rlzoo_plus.agents.policy.Policy.predict` with `deterministic=True`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib.ars.policies import ARSPolicy
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
        is_own = _is_own_class(policy.network)
        self.input = _Input(policy, signature.keys, is_own=is_own)
        self.actor = _OwnActor(policy.network) if is_own else _actor_of(policy.network)
        self.output = _Output(policy.network, is_own=is_own)
        self.eval()

    def forward(self, *inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the action, and the new state of a recurrent policy."""
        count = self.signature.n_observations
        rest = list(inputs[count:])
        observation = self.input(inputs[:count])
        if not self.signature.recurrent:
            return self.output(self.actor(observation), *rest)
        hidden, cell, start, *masks = rest
        raw, hidden, cell = self.actor(observation, hidden, cell, start)
        return self.output(raw, *masks), hidden, cell


class _Input(nn.Module):
    """Normalises, then encodes as the features extractor expects it."""

    def __init__(self, policy: Policy, keys: tuple[str, ...], *, is_own: bool) -> None:
        super().__init__()
        self.keys = keys
        space = policy.network.observation_space
        # A class of the user's encodes by itself.
        scaled = None if is_own else _part_that_reads(policy.network).normalize_images
        self.parts = nn.ModuleList(
            _Part(space[key] if key else space, policy.normalizer, key, scaled)
            for key in keys or ("",)
        )

    def forward(self, inputs: tuple[Tensor, ...]) -> Any:
        parts = [part(value) for part, value in zip(self.parts, inputs, strict=True)]
        return dict(zip(self.keys, parts, strict=True)) if self.keys else parts[0]


class _Part(nn.Module):
    mean: Tensor
    std: Tensor
    choices: Tensor

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
            return self._one_hot(value)
        value = value.float()
        return value if self.scale is None else value / self.scale

    def _one_hot(self, value: Tensor) -> Tensor:
        assert self.sizes is not None
        columns = value.reshape(-1, len(self.sizes)).long()
        hot = [columns[:, i : i + 1] == torch.arange(n) for i, n in enumerate(self.sizes)]
        return torch.cat(hot, dim=1).float()


class _Feedforward(nn.Module):
    """Features extractor and layers, one after the other."""

    def __init__(self, extractor: nn.Module, *layers: nn.Module) -> None:
        super().__init__()
        self.extractor = extractor
        self.layers = nn.Sequential(*layers)

    def forward(self, observation: Any) -> Tensor:
        return self.layers(self.extractor(observation))


class _OwnActor(nn.Module):
    """A policy class of the user's, which chooses actions in its own way."""

    def __init__(self, network: BasePolicy) -> None:
        super().__init__()
        self.network = network

    def forward(self, observation: Any) -> Tensor:
        # Their checks of arguments are branches, which a graph cannot hold.
        checks = torch.distributions.Distribution._validate_args
        torch.distributions.Distribution.set_default_validate_args(False)
        try:
            return self.network._predict(observation, deterministic=True)
        finally:
            torch.distributions.Distribution.set_default_validate_args(checks)


class _Recurrent(nn.Module):
    """One step of the actor's LSTM; what came before an episode's start is forgotten."""

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
    """From the network's last layer to an action that `env.step` takes."""

    low: Tensor
    high: Tensor

    def __init__(self, network: BasePolicy, *, is_own: bool) -> None:
        super().__init__()
        space = network.action_space
        self.is_chosen = is_own
        self.is_box = isinstance(space, spaces.Box)
        self.shape = tuple(space.shape or ())
        self.squashed = bool(network.squash_output)
        # TD3's networks end in their own tanh, as do those of augmented random search.
        self.tanh = self.squashed and not is_own and not _ends_in_tanh(network)
        self.sizes: list[int] = []
        self.is_binary = False
        if isinstance(space, spaces.Box):
            self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
            self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))
        elif isinstance(space, spaces.MultiDiscrete):
            self.sizes = [int(n) for n in space.nvec]
        elif isinstance(space, spaces.MultiBinary):
            self.is_binary = True
        elif not isinstance(space, spaces.Discrete):
            raise ConfigError(f"{type(space).__name__} actions cannot be exported.")

    def forward(self, raw: Tensor, masks: Tensor | None = None) -> Tensor:
        if self.is_box:
            return self._box(raw)
        if self.is_chosen:
            return raw.reshape(-1, *self.shape).long()
        # A masked binary choice has a score for no and one for yes.
        sizes = [2] * (raw.shape[1] // 2) if self.is_binary and masks is not None else self.sizes
        if masks is not None:
            raw = torch.where(masks, raw, torch.full_like(raw, _MASKED))
        if self.is_binary and masks is None:
            return torch.round(torch.sigmoid(raw)).long()
        if not sizes:
            return raw.argmax(dim=1)
        return torch.stack([part.argmax(dim=1) for part in raw.split(sizes, dim=1)], dim=1)

    def _box(self, raw: Tensor) -> Tensor:
        action = (torch.tanh(raw) if self.tanh else raw).reshape(-1, *self.shape)
        if self.squashed:
            action = self.low + (0.5 * (action + 1.0) * (self.high - self.low))
        return torch.minimum(torch.maximum(action, self.low), self.high)


def _actor_of(network: BasePolicy) -> nn.Module:
    """Return the layers that decide, without critics and exploration.

    Raises:
        ConfigError: The policy is of a kind whose deciding layers are not known here.
    """
    part = _part_that_reads(network)
    extractor = part.features_extractor
    if isinstance(network, RecurrentActorCriticPolicy):
        return _Recurrent(network)
    if isinstance(network, ActorCriticPolicy) or _is_masked(network):
        layers = (network.mlp_extractor.policy_net, network.action_net)
        return _Feedforward(network.pi_features_extractor, *layers)
    if isinstance(network, DQNPolicy):
        return _Feedforward(extractor, part.q_net)
    if isinstance(network, QRDQNPolicy):
        return _Feedforward(extractor, part.quantile_net, _MeanOfQuantiles(part.n_quantiles))
    if isinstance(network, ARSPolicy):
        return _Feedforward(extractor, network.action_net)
    if hasattr(part, "latent_pi"):
        return _Feedforward(extractor, part.latent_pi, part.mu)
    if hasattr(part, "mu"):
        return _Feedforward(extractor, part.mu)
    raise ConfigError(
        f"a policy of type {type(network).__name__} cannot be exported to a graph: which of its "
        "layers decide is not known here. Use --format sb3."
    )


def _is_own_class(network: BasePolicy) -> bool:
    """Tell whether a policy is of a class of the user's, which may decide in another way."""
    if isinstance(network, RecurrentActorCriticPolicy) or _is_masked(network):
        return False
    known = ("stable_baselines3", "sb3_contrib")
    has_action = isinstance(network, BasePolicy)
    return has_action and type(network).__module__.partition(".")[0] not in known


def _part_that_reads(network: BasePolicy) -> Any:
    """Return the part of a policy that owns the deciding features extractor."""
    for name in ("actor", "q_net", "quantile_net"):
        if isinstance(getattr(network, name, None), nn.Module):
            return getattr(network, name)
    return network


def _ends_in_tanh(network: BasePolicy) -> bool:
    actor = getattr(network, "actor", None)
    is_deterministic = isinstance(actor, nn.Module) and not hasattr(actor, "latent_pi")
    return is_deterministic or isinstance(network, ARSPolicy)


def _is_masked(network: BasePolicy) -> bool:
    from sb3_contrib.common.maskable.policies import MaskableActorCriticPolicy

    return isinstance(network, MaskableActorCriticPolicy)
