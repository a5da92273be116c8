"""What agents of sbx, which compute with JAX, get besides; see `torch_backend` for the others."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from gymnasium import spaces

from rlzoo_plus.agents.jax_agents import ACTIVATIONS, OPTIMIZERS, JaxAgent, with_arrays
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.catalog import AlgorithmSpec
    from rlzoo_plus.config.schema import NetworkConfig, RunConfig

log = logging.getLogger(__name__)


def mixins(_config: RunConfig) -> list[type]:
    """Return what an algorithm's class gets: a state of plain arrays."""
    return [JaxAgent]


def policy_class(chosen: type, spec: AlgorithmSpec, space: spaces.Space[Any]) -> type:
    """Return the class of the policy: the chosen one, with networks that are plain arrays.

    Raises:
        ConfigError: sbx cannot join the entries of dictionary observations to one vector.
    """
    for key, part in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        if not isinstance(part, spaces.Box) or len(part.shape) != 1:
            raise ConfigError(
                f"{spec.name} joins the entries of Dict observations to one vector, and {key} is "
                f"{type(part).__name__} of shape {part.shape}. Use a wrapper such as "
                "env.wrappers=[flatten_observation]."
            )
    return with_arrays(chosen)


def parts(network: NetworkConfig) -> dict[str, Any]:
    """Return activation and optimizer as a policy takes them; `config` has checked them."""
    found: dict[str, Any] = {}
    if network.activation is not None:
        found["activation_fn"] = ACTIVATIONS[network.activation]
    if network.optimizer is not None:
        found["optimizer_class"] = OPTIMIZERS[network.optimizer]
    return found


def attach_accelerators(_agent: Any, config: RunConfig, spec: AlgorithmSpec) -> None:
    """Say which settings have no effect on a new agent."""
    if config.fast:
        value = str(config.fast).lower()
        log.warning("fast=%s has no effect: %s computes with JAX", value, spec.name)
    if config.record_updates:
        log.info("updates are not recorded: %s compiles them with JAX", spec.name)


def plan(policy: Any) -> None:
    """Give the networks of a policy their shapes."""
    policy.plan()
