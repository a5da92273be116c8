"""A replay buffer as rows: the arrays that a checkpoint keeps in chunks, and which are new."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.envs.plain_state import is_plain, replace_attributes, to_plain

# Hindsight replay rewrites these in old rows, when an episode ends and when one is overwritten;
# prioritized replay, when it has learned from one.
_REWRITTEN = ("ep_start", "ep_length", "priorities")
CONSTANT = ("n_envs", "buffer_size", "obs_shape", "action_dim", "optimize_memory_usage")
ROWS, EPISODES = "replay", "replay_episodes"


@dataclass(frozen=True)
class RowGroup:
    """Arrays of a replay buffer that change together."""

    columns: dict[str, np.ndarray]  # by name, shape (buffer_size, n_envs, ...); not copies
    used: int  # rows in use, from the first
    append_only: bool  # whether rows never change until new ones overwrite them


def row_groups(buffer: Any) -> dict[str, RowGroup]:
    """Return the row arrays of a replay buffer of Stable-Baselines3, by group."""
    named: dict[str, Any] = {}
    for name, value in vars(buffer).items():
        if isinstance(value, dict):
            named |= {f"{name}/{key}": part for key, part in value.items()}
        else:
            named[name] = value
    rows = {
        name: value
        for name, value in named.items()
        if not name.startswith("_") and isinstance(value, np.ndarray) and value.dtype.kind in "biuf"
        if value.ndim and len(value) == buffer.buffer_size
    }
    # The memory-saving variant stores each next observation in the next row.
    beyond = 1 if getattr(buffer, "optimize_memory_usage", False) else 0
    used = buffer.buffer_size if buffer.full else min(buffer.pos + beyond, buffer.buffer_size)
    episodes = {name: rows.pop(name) for name in _REWRITTEN if name in rows}
    groups = {ROWS: RowGroup(rows, used, append_only=True)}
    if episodes:
        groups[EPISODES] = RowGroup(episodes, used, append_only=False)
    return groups


def buffer_state(buffer: Any) -> dict[str, Any]:
    """Return the attributes of a replay buffer besides its rows, as plain data."""
    return {
        name: to_plain(value)
        for name, value in vars(buffer).items()
        if is_plain(value) and not (isinstance(value, np.ndarray) and not name.startswith("_"))
        if not isinstance(value, dict)
    }


def restore_buffer_state(buffer: Any, state: dict[str, Any], changed: Collection[str] = ()) -> None:
    """Restore a replay buffer; the chunk store fills its rows in place.

    Args:
        buffer: Built from the present configuration.
        state: From `buffer_state`.
        changed: Hyperparameters that were changed since; they stay as configured.

    Raises:
        ValueError: The state does not fit the buffer.
    """
    for name in CONSTANT:
        if name in state and state[name] != getattr(buffer, name):
            raise ValueError(f"the replay buffer's {name} differs")
    kept = set(changed) - set(CONSTANT)
    replace_attributes(buffer, {k: v for k, v in state.items() if k not in kept})
    rows = np.append(getattr(buffer, "_current_ep_start", 0), buffer.pos)
    if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= buffer.buffer_size:
        raise ValueError("the replay buffer's position is out of range")
    if hasattr(buffer, "check_priorities"):
        buffer.check_priorities()


def end_running_episodes(buffer: Any) -> None:
    """End the episodes in the last rows, so that no n-step return or goal crosses their end."""
    if hasattr(buffer, "truncate_last_trajectory"):
        buffer.truncate_last_trajectory()
    elif buffer.full or buffer.pos:
        last = (buffer.pos - 1) % buffer.buffer_size
        if buffer.handle_timeout_termination:
            buffer.timeouts[last] = np.logical_or(buffer.timeouts[last], buffer.dones[last] == 0)
        buffer.dones[last] = 1.0


def unsaved_parts(buffer: Any) -> list[str]:
    """Return what a checkpoint misses of a replay buffer, a text for each."""
    if getattr(buffer, "copy_info_dict", False):
        return ["the replay buffer has info dictionaries (copy_info_dict), which are not saved"]
    return []


def changed_rows(buffer: Any, pos_before: int, n_added: int) -> list[range] | None:
    """Return the rows written since an earlier position, or None if that is unknown.

    Args:
        buffer: The replay buffer now.
        pos_before: Its earlier position.
        n_added: Vectorised steps stored since then.
    """
    size = buffer.buffer_size
    if n_added >= size or (pos_before + n_added) % size != buffer.pos:
        return None
    # One more row on either side, across the end: the memory-saving variant writes one ahead, and
    # an abandoned episode is marked in its last row.
    begin, end = pos_before - 1, pos_before + n_added + 1
    parts = [range(max(begin + s, 0), min(end + s, size)) for s in (size, 0, -size)]
    return [part for part in parts if part]
