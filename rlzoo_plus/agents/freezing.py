"""Freezing: parts of an agent's networks that keep their weights, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    import torch
    from stable_baselines3.common.base_class import BaseAlgorithm

# An extractor of its own for the policy or the value, and the target of a network.
_VARIANT = re.compile(r"^(?:pi|vf)_(?=features_extractor$)|_target$")
_NOT_NAMED = re.compile(r"\d+|weight|bias")


class KeepsFrozen:
    """Mixin for an algorithm whose networks are partly frozen.

    Attributes:
        held: Frozen tensors that follow no gradient: targets, which follow another network, and
            running statistics.
    """

    held: Sequence[torch.Tensor] = ()

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks; what is frozen is afterwards as it was before."""
        before = [tensor.clone() for tensor in self.held]
        super().train(*args, **kwargs)  # type: ignore[misc]
        for tensor, value in zip(self.held, before, strict=True):
            # An average of a tensor and an equal one differs in the last bit.
            tensor.data.copy_(value)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "held"]  # type: ignore[misc]


def freeze(agent: BaseAlgorithm, names: Sequence[str]) -> None:
    """Let parts of an agent's networks keep their weights.

    Args:
        agent: Of a class with the mixin `KeepsFrozen`.
        names: Each the name of a module or parameter, or of several in a row: `features_extractor`
            is that of the policy, of the critic and of its target, `actor.latent_pi.0` one layer.

    Raises:
        ConfigError: There is no such part, or what is left cannot be trained.
    """
    if hasattr(agent, "hessian_vector_product") or hasattr(agent, "n_delta"):
        raise ConfigError(
            f"freeze={list(names)}: {type(agent).__name__} changes all weights of its policy by "
            "one step. Leave freeze out, or choose an algorithm that follows gradients."
        )
    policy = agent.policy
    known = [name for name, _ in policy.named_parameters(remove_duplicate=False)]
    for name in names:
        if not any(_is_part(name, parameter) for parameter in known):
            parts = {part for parameter in known for part in parameter.split(".")}
            shown = {_VARIANT.sub("", part) for part in parts if not _NOT_NAMED.fullmatch(part)}
            raise ConfigError(unknown_name("part in freeze", name, shown))
    tensors = [
        *policy.named_parameters(remove_duplicate=False),
        *policy.named_buffers(remove_duplicate=False),
    ]
    frozen = {id(t): t for n, t in tensors if any(_is_part(name, n) for name in names)}
    # The parameters of each optimizer, with its name.
    learned = {
        id(tensor): name
        for name, part in agent.get_parameters().items()
        if "param_groups" in part
        for group in attrgetter(name)(agent).param_groups
        for tensor in group["params"]
    }
    for tensor in frozen.values():
        tensor.requires_grad_(False)
    for optimizer in dict.fromkeys(learned.values()):
        # The actor's gradient passes through the critic, so it alone may have nothing to learn.
        left = [key for key, name in learned.items() if name == optimizer and key not in frozen]
        if not left and not optimizer.startswith("actor"):
            raise ConfigError(
                f"freeze={list(names)} leaves {optimizer} nothing to learn. Freeze fewer parts."
            )
    agent.held = [tensor for key, tensor in frozen.items() if key not in learned]


def _is_part(name: str, parameter: str) -> bool:
    """Return whether the parts of a name follow each other in that of a parameter."""
    wanted, parts = name.split("."), parameter.split(".")
    return any(
        candidate[start : start + len(wanted)] == wanted
        for candidate in (parts, [_VARIANT.sub("", part) for part in parts])
        for start in range(len(parts))
    )
