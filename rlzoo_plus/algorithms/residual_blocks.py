"""Residual blocks in place of the hidden layers of a policy's networks: SimBa, and plain ones.

Lee et al., "SimBa: Simplicity Bias for Scaling Up Parameters in Deep Reinforcement Learning" (ICLR
2025, arXiv 2410.09754): a linear layer, blocks that add an MLP of what they got, normalised, to it,
and layer normalisation at the end. Observations are normalised before, by `normalize`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from stable_baselines3.common.policies import BasePolicy
from torch import Tensor, nn

from rlzoo_plus.errors import ConfigError

# What makes the networks of a policy, off-policy and on-policy.
_MAKERS = ("make_actor", "make_critic", "make_q_net", "make_quantile_net", "_build_mlp_extractor")
# Networks whose output layer is elsewhere.
_WITHOUT_OUTPUT = ("latent_pi", "policy_net", "value_net")
# The hidden layer of a block, in widths of the block.
_EXPANSION = 4


class ResidualBlock(nn.Module):
    """Adds an MLP of its input to it, after layer normalisation as in SimBa, or without."""

    def __init__(self, width: int, activation: type[nn.Module], *, has_norm: bool) -> None:
        super().__init__()
        first, last = nn.Linear(width, _EXPANSION * width), nn.Linear(_EXPANSION * width, width)
        for layer in (first, last):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        norm = [nn.LayerNorm(width)] if has_norm else []
        self.layers = nn.Sequential(*norm, first, activation(), last)

    def forward(self, values: Tensor) -> Tensor:
        """Return features of the same shape, (batch, width)."""
        result: Tensor = values + self.layers(values)
        return result


@cache
def with_blocks(kind: type[BasePolicy], blocks: str) -> type[BasePolicy]:
    """Return a subclass of a policy, each of whose hidden layers is a residual block.

    Args:
        kind: The class of the policy.
        blocks: `simba`, or `resnet` for blocks without normalisation.
    """
    made: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    for name in _MAKERS:
        if hasattr(kind, name):
            made[name] = _with_blocks(getattr(kind, name), blocks)
    # Under a name of its own: a policy of this class is not the known one.
    return type(f"Residual{kind.__name__}", (kind,), made)


def _with_blocks(make: Callable[..., Any], blocks: str) -> Any:
    """Return a method that changes the networks that another one makes."""

    @wraps(make)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        network = make(self, *args, **kwargs)
        # That of on-policy algorithms makes both networks as parts of one.
        for name, layers in (network or self.mlp_extractor).named_children():
            if isinstance(layers, nn.Sequential):
                _replace(name, layers, self.activation_fn, blocks)
        (network or self.mlp_extractor).to(self.device)
        return network

    return made


def _replace(name: str, layers: nn.Sequential, activation: type[nn.Module], blocks: str) -> None:
    """Put blocks in the place of hidden layers.

    Raises:
        ConfigError: They have no width in common.
    """
    linear = [k for k, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
    hidden = linear if name in _WITHOUT_OUTPUT else linear[:-1]
    widths = [int(layers[k].out_features) for k in hidden]  # type: ignore[arg-type]
    if len(set(widths)) != 1:
        raise ConfigError(
            f"network.blocks={blocks} with hidden layers {widths}: each is a block, and all blocks "
            "of a network are of one width. Set for example network.net_arch=[128,128]."
        )
    width, has_norm = widths[0], blocks == "simba"
    embed = nn.Linear(layers[hidden[0]].in_features, width)  # type: ignore[arg-type]
    nn.init.orthogonal_(embed.weight)
    nn.init.zeros_(embed.bias)
    parts = [embed, *(ResidualBlock(width, activation, has_norm=has_norm) for _ in widths)]
    parts += [nn.LayerNorm(width)] if has_norm else []
    output = [] if hidden is linear else list(layers)[linear[-1] :]
    # In place: critics keep a list of these objects, too.
    del layers[:]
    layers.extend([*parts, *output])
