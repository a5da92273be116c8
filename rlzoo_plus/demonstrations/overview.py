"""What datasets hold, as tables: found below a folder, one of them, or one checked as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.analysis.run_list import aligned, counted
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.demonstrations.dataset import Dataset, joined, require_fit
from rlzoo_plus.demonstrations.minari_format import (
    digest,
    is_dataset,
    read_dataset,
    read_facts,
)
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

_MOST_LISTED, _DEEPEST = 1000, 6
# An action nearer than this to a bound, of its range, is at the bound.
_AT_BOUND = 1e-3


def datasets_below(folder: Path) -> Iterator[Path]:
    """Yield the datasets below a folder; links are not followed."""
    count, base = 0, len(folder.parts)
    for place, below, _ in os.walk(folder):
        path = Path(place)
        if len(path.parts) - base >= _DEEPEST:
            below.clear()
        if is_dataset(path):
            below.clear()
            yield path
            count += 1
        if count >= _MOST_LISTED:
            return
        below.sort()


def listing(folder: Path) -> list[dict[str, Any]]:
    """Return what the metadata of each dataset below a folder say; damaged ones say why."""
    rows = []
    for path in datasets_below(folder):
        try:
            facts = read_facts(path)
        except ConfigError as error:
            rows.append({"path": str(path), "error": str(error)})
        else:
            rows.append({"path": str(path), **_facts(facts)})
    return rows


def listed(rows: list[dict[str, Any]]) -> str:
    """Return the listing as text."""
    table = [("dataset", "episodes", "steps", "observation", "action", "algorithm")]
    for row in rows:
        if "error" in row:
            table.append((printable(row["path"], LONGEST_LINE), "damaged", "", "", "", ""))
        else:
            cells = (f"{row['episodes']:,}", f"{row['steps']:,}", row["observation"], row["action"])
            name = printable(row["about"].get("algorithm_name", ""), 40)
            table.append((printable(row["path"], LONGEST_LINE), *cells, name))
    return "\n".join(aligned(table, right=("episodes", "steps")))


def shown(path: Path) -> dict[str, Any]:
    """Return what is in a dataset, after all of it was read and checked.

    Raises:
        ConfigError: It is damaged; the text says where.
    """
    dataset, facts = read_dataset(path), read_facts(path)
    if dataset.n_steps != facts["total_steps"]:
        raise ConfigError(
            f"{printable(path)}: its metadata say {facts['total_steps']} steps, and its episodes "
            f"have {dataset.n_steps}."
        )
    returns = [episode.episode_return for episode in dataset.episodes]
    lengths = [episode.n_steps for episode in dataset.episodes]
    found = {
        "path": str(path),
        **_facts(facts),
        "sha256": digest(path)[:16],
        "mean_return": float(np.mean(returns)),
        "lowest_return": min(returns),
        "highest_return": max(returns),
        "shortest": min(lengths),
        "longest": max(lengths),
        "terminated": sum(episode.terminated for episode in dataset.episodes),
        "repeated": len(dataset.episodes) - len({_key(one.actions) for one in dataset.episodes}),
    }
    if isinstance(dataset.action_space, spaces.Box):
        at, beyond = _shares_at_bounds(dataset, dataset.action_space)
        found["at_bounds"], found["beyond_bounds"] = at, beyond
    return found


def require_task(
    path: Path, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> None:
    """Raise a ConfigError if a dataset is of another task than an environment's."""
    require_fit(read_dataset(path), observation_space, action_space)


def as_text(found: dict[str, Any]) -> str:
    """Return `shown` as text."""
    rows = [
        ("dataset", f"{found['path']}, content {found['sha256']}"),
        *((name.replace("_", " "), text) for name, text in found["about"].items()),
        ("observation", found["observation"]),
        ("action", found["action"]),
        ("episodes", f"{found['episodes']:,} of {found['shortest']:,} to {found['longest']:,} steps"
         f", {found['steps']:,} in all; {found['terminated']} ended before a time limit"),
        ("return", f"{found['mean_return']:.2f} on average, from {found['lowest_return']:.2f} to "
         f"{found['highest_return']:.2f}"),
    ]  # fmt: skip
    if "at_bounds" in found:
        rows.append(("at a bound", f"{100 * found['at_bounds']:.1f}% of the actions' entries"))
    if found.get("beyond_bounds"):
        share = f"{100 * found['beyond_bounds']:.2g}% of the actions' entries"
        rows.append(("beyond a bound", f"{share}; learned from as if they were at it"))
    if found["repeated"]:
        repeated = counted(found["repeated"], "episode")
        rows.append(("repeated", f"{repeated} with the actions of another one"))
    return "\n".join(f"{name:<16}{printable(text, LONGEST_LINE)}" for name, text in rows)


def _facts(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "episodes": facts["total_episodes"],
        "steps": facts["total_steps"],
        "observation": _short(facts["observation"]),
        "action": _short(facts["action"]),
        "about": facts["about"],
    }


def _short(space: spaces.Space[Any]) -> str:
    """Return a space by kind and shape."""
    if isinstance(space, spaces.Dict):
        return ", ".join(f"{printable(k, 40)}: {_short(s)}" for k, s in parts_of(space).items())
    if isinstance(space, spaces.Discrete):
        return f"{space.n} choices"
    return f"{type(space).__name__} {'x'.join(map(str, space.shape or ()))}"


def _shares_at_bounds(dataset: Dataset, space: spaces.Box) -> tuple[float, float]:
    """Return the share of entries at or beyond a bound, and of those clearly beyond."""
    actions = joined(one.actions for one in dataset.episodes)
    edge = _AT_BOUND * (space.high - space.low)
    at = (actions <= space.low + edge) | (actions >= space.high - edge)
    beyond = (actions < space.low - edge) | (actions > space.high + edge)
    return float(np.mean(at)), float(np.mean(beyond))


def _key(actions: np.ndarray) -> bytes:
    return actions.tobytes()
