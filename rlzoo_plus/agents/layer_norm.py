"""Layer normalisation and dropout in the networks of off-policy algorithms.

Both follow each hidden linear layer, dropout first, as in RLPD (Ball et al., arXiv 2302.02948) and
DroQ (Hiraoka et al., arXiv 2110.02034).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from stable_baselines3.common.policies import BasePolicy
from torch import nn

# What makes the networks of a policy; a critic is also what gives values of all actions.
_CRITICS = ("make_critic", "make_q_net", "make_quantile_net")
_ALL = (*_CRITICS, "make_actor")
# Networks whose output layer is elsewhere.
_WITHOUT_OUTPUT = ("latent_pi",)


@cache
def with_layer_norm(
    kind: type[BasePolicy], part: str | None, dropout: float | None
) -> type[BasePolicy]:
    """Return a subclass of an off-policy algorithm's policy whose networks have these layers.

    Args:
        kind: The class of the policy.
        part: Which networks get layer normalisation: `critic`, `all`, or None.
        dropout: Probability of the critics' dropout while they learn; None for none.
    """
    made: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
    for name in _ALL:
        is_critic = name in _CRITICS
        has_norm = part == "all" or (part == "critic" and is_critic)
        probability = dropout if is_critic else None
        if hasattr(kind, name) and (has_norm or probability):
            made[name] = _with_layers(getattr(kind, name), probability, has_norm=has_norm)
    # Under a name of its own: a policy of this class is not the known one.
    return type(f"LayerNorm{kind.__name__}", (kind,), made)


def _with_layers(make: Callable[..., Any], dropout: float | None, *, has_norm: bool) -> Any:
    """Return a method that adds the layers to the network that another one makes."""

    @wraps(make)
    def made(self: BasePolicy, *args: Any, **kwargs: Any) -> Any:
        network = make(self, *args, **kwargs)
        for name, layers in network.named_children():
            if isinstance(layers, nn.Sequential):
                linear = [k for k, layer in enumerate(layers) if isinstance(layer, nn.Linear)]
                hidden = linear if name in _WITHOUT_OUTPUT else linear[:-1]
                for place in reversed(hidden):
                    if has_norm:
                        layers.insert(place + 1, nn.LayerNorm(layers[place].out_features))
                    if dropout:
                        layers.insert(place + 1, nn.Dropout(dropout))
        return network.to(self.device)

    return made
