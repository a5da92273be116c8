"""Running episodes that are long: their past as rows for chunks, so that it is written once.

What decides an episode is the seed of its reset and its actions. An episode that never ends would
make each checkpoint longer than the one before; its blocks that are full never change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.chunk_index import ChunkIndex

# Steps in a block; what comes after the last full one is in the checkpoint itself.
BLOCK = 4096
PREFIX = "episode/"
# Of all environments together, when a checkpoint is read that may come from anywhere.
_LARGEST_BYTES = 2**32
_DAMAGED = "the past of an episode is damaged"


@dataclass(frozen=True)
class Past:
    """The full blocks of one environment's running episode.

    Attributes:
        start: The environment's steps before the episode; no other of its episodes has the same.
        columns: `rewards`, and `actions` if they are kept, shape (n_steps, ...).
        n_steps: Steps in full blocks, a multiple of `BLOCK`.
    """

    start: int
    columns: dict[str, np.ndarray]
    n_steps: int


def take_past(envs: dict[str, Any]) -> dict[str, Past]:
    """Move the full blocks out of the state of environments.

    Args:
        envs: From `capture_envs`; only what follows the blocks stays in it.

    Returns:
        The past of each environment that has one, by the name of its chunks.
    """
    found = {}
    for rank, (held, rewards) in enumerate(zip(envs["episodes"], envs["rewards"], strict=True)):
        n_steps = len(rewards) // BLOCK * BLOCK
        episode = held["episode"]
        actions = None if episode is None else episode["actions"]
        if not n_steps or episode is None or (actions is not None and len(actions) < n_steps):
            continue
        columns = {"rewards": rewards[:n_steps]}
        envs["rewards"][rank] = rewards[n_steps:].copy()
        if actions is not None:
            columns["actions"] = actions[:n_steps]
            episode["actions"] = actions[n_steps:].copy()
        start = envs["total_steps"][rank] - len(rewards)
        found[f"{PREFIX}{rank}"] = Past(start, columns, n_steps)
    return found


def put_past_back(
    envs: dict[str, Any],
    chunks: Mapping[str, ChunkIndex],
    read: Callable[[str, Mapping[str, np.ndarray]], None],
) -> dict[str, int]:
    """Join the blocks of a checkpoint with what follows them.

    Args:
        envs: The state of environments in the checkpoint; it is completed.
        chunks: Where the checkpoint's rows are.
        read: Fills arrays with the rows of a name.

    Returns:
        The start of each episode that has a past, by the name of its chunks.

    Raises:
        ValueError: They do not belong together.
    """
    mine = {name: index for name, index in chunks.items() if name.startswith(PREFIX)}
    if sum(index.used * index.row_bytes for index in mine.values()) > _LARGEST_BYTES:
        raise ValueError(_DAMAGED)
    starts = {}
    for name, index in mine.items():
        rank = int(name.removeprefix(PREFIX))
        episode = envs["episodes"][rank]["episode"]
        columns = {c.name: np.empty((index.used, *c.shape), c.dtype) for c in index.columns}
        if episode is None or not {"rewards"} <= columns.keys() <= {"rewards", "actions"}:
            raise ValueError(_DAMAGED)
        read(name, columns)
        envs["rewards"][rank] = np.concatenate([columns["rewards"], envs["rewards"][rank]])
        if "actions" in columns:
            episode["actions"] = np.concatenate([columns["actions"], episode["actions"]])
        starts[name] = envs["total_steps"][rank] - len(envs["rewards"][rank])
    return starts
