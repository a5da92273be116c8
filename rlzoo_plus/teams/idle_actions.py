"""What an agent does that does nothing: zeros of its space, or the action that is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.errors import ConfigError


def idle_actions(
    key: str, env_id: str, inner: Any, default: float | Sequence[float] | None = None
) -> dict[Any, Any]:
    """Return for each agent of a world the action that stands for doing nothing.

    Args:
        key: What asks for it, for errors.
        env_id: For errors.
        inner: A world of PettingZoo's parallel form.
        default: For all entries, or one number for each; None: zeros, of choices the first.

    Raises:
        ConfigError: It is no action of an agent, or the agents act in turns.
    """
    refuse_turns(key, env_id, inner)
    found = {}
    for agent in inner.possible_agents:
        space = inner.action_space(agent)
        found[agent] = _idle(space, default)
        if found[agent] is None:
            shown = "zeros" if default is None else default
            raise ConfigError(
                f"{key}: {shown} is no action of {agent}, whose space is {space}. Name one that "
                "does nothing: env.credit={method: difference, default: ...}, a number for all "
                "entries or a list."
            )
    return found


def refuse_turns(key: str, env_id: str, inner: Any) -> None:
    """Refuse a world whose agents act in turns.

    Raises:
        ConfigError: They do.
    """
    if hasattr(inner, "movers"):
        raise ConfigError(
            f"{key}: the agents of {env_id} act in turns, and a turn cannot be left out. Use a "
            "world whose agents act at once."
        )


def _idle(space: spaces.Space[Any], default: float | Sequence[float] | None) -> Any:
    """Return an action of numbers; None if it is none of the space."""
    if space.dtype is None or space.shape is None:
        return None
    first = getattr(space, "start", 0)
    wanted = np.asarray(first if default is None else default)
    try:
        action = np.broadcast_to(wanted, space.shape).astype(space.dtype)
    except ValueError:
        return None
    is_whole = not isinstance(space, spaces.Box)
    if is_whole and not np.array_equal(action, np.broadcast_to(wanted, space.shape)):
        return None
    found = action[()] if action.ndim == 0 else action
    return found if space.contains(found) else None
