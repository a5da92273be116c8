"""What agents of Stable-Baselines3 and sb3-contrib, which compute with torch, get besides."""

from __future__ import annotations

import logging
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlzoo_plus import accelerators
from rlzoo_plus.agents.hooks import freeze
from rlzoo_plus.config.catalog import (
    ACTIVATIONS,
    EXPLORING,
    FEATURES_EXTRACTORS,
    OPTIMIZERS,
    PRIORITIZED,
    PRIORITIZED_UPDATES,
    RANKS,
    AlgorithmSpec,
)

if TYPE_CHECKING:
    from gymnasium import spaces
    from stable_baselines3.common.policies import BasePolicy

    from rlzoo_plus.config.schema import NetworkConfig, RunConfig

log = logging.getLogger(__name__)
# Networks that follow others: q_net_target, quantile_net_target.
_FOLLOWING = re.compile(r"\w_target\.")


def mixins(config: RunConfig) -> list[type]:
    """Return what an algorithm's class gets: updates with others, faster ones, with priorities."""
    joint = [import_module(RANKS).JointUpdates] if config.distributed > 1 else []
    is_prioritized = config.algo.replay_buffer in PRIORITIZED
    own = [import_module(PRIORITIZED_UPDATES).PrioritizedUpdates] if is_prioritized else []
    if config.exploration.kind is not None:
        own += import_module(EXPLORING).mixins_of(config.exploration)
    return [*joint, *accelerators.mixins(config), *own]


def policy_class(
    chosen: type[BasePolicy], _spec: AlgorithmSpec, _space: spaces.Space[Any]
) -> type[BasePolicy]:
    """Return the class of the policy, which is the chosen one."""
    return chosen


def parts(network: NetworkConfig) -> dict[str, Any]:
    """Return activation, optimizer and features extractor as a policy takes them."""
    return {
        key: registry.load(value)
        for key, value, registry in (
            ("activation_fn", network.activation, ACTIVATIONS),
            ("optimizer_class", network.optimizer, OPTIMIZERS),
            ("features_extractor_class", network.features_extractor, FEATURES_EXTRACTORS),
        )
        if value is not None
    }


def attach_accelerators(agent: Any, config: RunConfig, spec: AlgorithmSpec) -> None:
    """Freeze parts of a new agent, and make it faster, as the configuration says."""
    _warn_of_what_does_not_learn(agent.policy)
    if config.freeze:
        freeze(agent, config.freeze)
    if spec.clones is None:
        accelerators.accelerate(agent, config)


def plan(policy: BasePolicy) -> None:
    """Give the networks of a policy their shapes; they have them from the start."""


def _warn_of_what_does_not_learn(policy: BasePolicy) -> None:
    """Name the layers that a user's policy class made after its optimizer."""
    optimizer = getattr(policy, "optimizer", None)
    if optimizer is None or hasattr(policy, "actor"):
        return  # it has several
    learned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    own = [(n, p) for n, p in policy.named_parameters() if not _FOLLOWING.search(n)]
    left = [n for n, p in own if p.requires_grad and id(p) not in learned]
    if left:
        log.warning(
            "%s: %s is not in its optimizer and does not learn. Make the optimizer after it, in "
            "_build()", type(policy).__name__, ", ".join(left)
        )  # fmt: skip
