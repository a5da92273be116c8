"""Widens the layers of a checkpoint's networks, which then compute the same as before.

A new unit begins with the weights that it would have in a new network, and what leads on from it
with 0: nothing changes until an update does. The optimizer's averages of new weights are 0. To copy
units instead (Chen et al. 2016, arXiv 1511.05641) would leave them alike for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from operator import attrgetter
from typing import Any

import numpy as np
from torch import nn

from rlzoo_plus.artifacts.checkpoint import Checkpoint
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.timetravel.branch_rules import NET_ARCH, Changes
from rlzoo_plus.training.live_agent import LiveAgent

_OF_ALL_UNITS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


def fitting(checkpoint: Checkpoint, config: RunConfig, changes: Changes) -> Checkpoint:
    """Return a checkpoint that fits a changed configuration; its agent is built once to see that.

    Raises:
        ConfigError: There is none.
    """
    if any(key.startswith(NET_ARCH) for key in changes):
        checkpoint = widened(checkpoint, config)
    LiveAgent(config, checkpoint).close()
    return checkpoint


def widened(checkpoint: Checkpoint, config: RunConfig) -> Checkpoint:
    """Return a checkpoint whose networks are as wide as a configuration says.

    Raises:
        ConfigError: They would not compute the same.
    """
    # Where its weights once came from does not matter.
    with closing(LiveAgent(config.model_copy(update={"init_from": None}))) as new:
        agent = new.algorithm
        if getattr(agent, "use_sde", False):
            raise _refusal("the noise of gSDE has a part for each unit")
        if any(isinstance(part, _OF_ALL_UNITS) for part in agent.policy.modules()):
            raise _refusal("layer normalization takes all units of a layer together")
        fresh = agent.get_parameters()
        saved = checkpoint.state["agent"]["parameters"]
        parameters = {
            name: _wider_optimizer(part, attrgetter(name)(agent))
            if name.endswith("optimizer")
            else _wider_module(part, fresh.get(name, {}))
            for name, part in saved.items()
        }
    state = {**checkpoint.state, "agent": {**checkpoint.state["agent"], "parameters": parameters}}
    return replace(checkpoint, state=state)


def _wider_module(saved: Mapping[str, Any], fresh: Mapping[str, Any]) -> dict[str, Any]:
    if saved.keys() != fresh.keys():
        raise _refusal("layers can be made wider, and not added or removed")
    found = {}
    for name, old in saved.items():
        new = fresh[name].detach().cpu().numpy()
        if not isinstance(old, np.ndarray) or old.shape == new.shape:
            found[name] = old
            continue
        if old.ndim != new.ndim or any(a > b for a, b in zip(old.shape, new.shape, strict=True)):
            raise _refusal(f"{printable(name, 60)} would become smaller")
        # Nothing leads from a new unit to an old one.
        wider = new.astype(old.dtype)
        wider[: len(old)] = 0
        wider[tuple(map(slice, old.shape))] = old
        found[name] = wider
    return found


def _wider_optimizer(saved: Mapping[str, Any], optimizer: Any) -> dict[str, Any]:
    weights = [one for group in optimizer.param_groups for one in group["params"]]

    def wider(value: Any, weight: Any) -> Any:
        shape = tuple(weight.shape)
        if not isinstance(value, np.ndarray) or value.ndim != len(shape) or value.shape == shape:
            return value
        found = np.zeros(shape, value.dtype)
        found[tuple(map(slice, value.shape))] = value
        return found

    state = {
        index: {name: wider(value, weights[int(index)]) for name, value in part.items()}
        for index, part in saved["state"].items()
    }
    return {**saved, "state": state}


def _refusal(why: str) -> ConfigError:
    return ConfigError(f"{why}.")
