"""Units of a network that do nothing: ReLUs that are never active, tanhs that are saturated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

_SATURATED = 0.99


@dataclass(frozen=True)
class Layer:
    """The units of one activation."""

    name: str  # Of the module in the policy
    kind: str  # `ReLU` or `Tanh`
    n_units: int  # How many; channels of convolutions
    n_dead: int  # ReLUs that are 0 for all observations, tanhs beyond 0.99 for all
    n_always: int  # ReLUs that are never 0, so linear; tanhs that are never beyond 0.99


def watch_units(network: Any, act: Callable[[], Any]) -> list[Layer]:
    """Return the layers that took part in a call."""
    seen: dict[str, tuple[str, torch.Tensor, torch.Tensor]] = {}

    def note(name: str, kind: str) -> Callable[..., None]:
        def hook(module: Any, arguments: Any, output: torch.Tensor) -> None:
            units = output.detach()
            if units.ndim > 2:
                units = units.transpose(0, 1).flatten(1).T
            off = (units <= 0.0) if kind == "ReLU" else (units.abs() > _SATURATED)
            dead, always = off.all(dim=0), (~off).all(dim=0)
            if name in seen and len(seen[name][1]) == len(dead):
                dead, always = dead & seen[name][1], always & seen[name][2]
            seen[name] = (kind, dead, always)

        return hook

    kinds = {nn.ReLU: "ReLU", nn.Tanh: "Tanh"}
    # The last tanh of an actor bounds the action, which is looked at by itself.
    names = [name for name, _ in network.named_modules()]
    bounds = next((name for name in reversed(names) if name.startswith("actor.mu.")), None)
    modules = [
        (name, module)
        for name, module in network.named_modules()
        if type(module) in kinds and name != bounds
    ]
    hooks = [m.register_forward_hook(note(name, kinds[type(m)])) for name, m in modules]
    try:
        act()
    finally:
        for handle in hooks:
            handle.remove()
    return [
        Layer(name, kind, len(dead), int(dead.sum()), int(always.sum()))
        for name, (kind, dead, always) in seen.items()
    ]
