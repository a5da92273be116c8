"""An episode that was played, and its files: arrays as .npz beside a .json, without pickle.

The JSON file is written last and holds the hash of the arrays, so an episode is there whole or not
at all. Files may come from others: they are bounded, and read as plain numbers.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from rlzoo_plus.artifacts.arrays import read_arrays
from rlzoo_plus.artifacts.atomic import finite, write_atomic
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.errors import ConfigError

FORMAT = 1
_LARGEST_ARRAYS_BYTES = 2**28
_MOST_EPISODES = 10_000
_TERM, _LAST = "term/", "last_observation"


@dataclass(frozen=True)
class Episode:
    """One episode of one environment."""

    seed: int  # Of its reset
    actions: np.ndarray  # Shape (n_steps, *action shape)
    rewards: np.ndarray  # Shape (n_steps,)
    # The weighted terms of the reward by name, shape (n_steps,) each, NaN where a step has none;
    # empty if the environment reports none
    terms: dict[str, np.ndarray]
    # What the policy expected at each step, shape (n_steps,); None if it has no critic
    values: np.ndarray | None
    # A number for what the policy saw at each step, see `digest_of`, shape (n_steps,)
    digests: np.ndarray
    # `V`, of the observation, or `Q`, of the observation and the action; else None
    value_kind: str | None
    last_observation: Any  # What the last step led to: an array, or a dictionary of them
    end_reason: str  # As the environment reports it, else `terminated` or `time_limit`
    terminated: bool  # Whether it ended for another reason than a limit of its length
    success: bool | None  # None if the environment does not report it
    # What the policy saw at each step; None if they were not kept
    observations: list[Any] | None = field(default=None, repr=False)

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return len(self.rewards)

    @property
    def episode_return(self) -> float:
        """Sum of the rewards."""
        return float(np.sum(self.rewards, dtype=np.float64))

    def term_totals(self) -> dict[str, float]:
        """Return the sum of each reward term over the episode."""
        return {name: float(np.nansum(values)) for name, values in self.terms.items()}


def digest_of(observation: Any) -> int:
    """Return 64 bits that change with any bit of an observation: an array, or a dictionary."""
    parts = observation if isinstance(observation, dict) else {"": observation}
    found = hashlib.blake2b(digest_size=8)
    for key in sorted(parts):
        array = np.asarray(parts[key])
        found.update(f"{key}{array.dtype.str}{array.shape}".encode() + array.tobytes())
    return int.from_bytes(found.digest(), "little")


def save_episodes(
    folder: Path, episodes: Sequence[Episode], about: Mapping[str, Any]
) -> list[Path]:
    """Write episodes to a folder, two files each; return the JSON files.

    Raises:
        ConfigError: The folder cannot be written.
    """
    files = []
    try:
        for number, episode in enumerate(episodes):
            file = folder / f"episode-{number:04d}.json"
            data = _npz(_arrays_of(episode))
            write_atomic(file.with_suffix(".npz"), data)
            facts = {
                "format": FORMAT,
                "seed": episode.seed,
                "n_steps": episode.n_steps,
                "return": episode.episode_return,
                "success": episode.success,
                "end_reason": episode.end_reason,
                "terminated": episode.terminated,
                "value_kind": episode.value_kind,
                "sha256": hashlib.sha256(data).hexdigest(),
                "about": dict(about),
            }
            write_atomic(file, json.dumps(finite(facts), indent=2, allow_nan=False) + "\n")
            files.append(file)
    except OSError as error:
        raise ConfigError(f"{printable(folder)} cannot be written: {error.strerror}.") from error
    return files


def check_free(folder: Path) -> None:
    """Refuse a folder that holds episodes: those of two evaluations would be mixed.

    Raises:
        ConfigError: It does, or it is a file.
    """
    if folder.is_file():
        raise ConfigError(f"{printable(folder)} is a file. Name a folder for the episodes.")
    if any(folder.glob("episode-*.json")):
        raise ConfigError(
            f"{printable(folder)} holds episodes already. Name another folder, or remove them."
        )


def episode_files(path: Path) -> list[Path]:
    """Return the JSON files of the episodes at a path: a folder, or one of an episode's files.

    Raises:
        ConfigError: There are none, or too many.
    """
    if path.is_dir():
        files = sorted(path.glob("episode-*.json"))
        if not files:
            how = "`rlzoo-plus evaluate RUN --save-episodes DIR` saves some"
            raise ConfigError(f"{printable(path)} holds no episodes. {how}.")
        if len(files) > _MOST_EPISODES:
            found = f"{len(files)} episodes, more than {_MOST_EPISODES}"
            raise ConfigError(f"{printable(path)} holds {found}. Name some of them.")
        return files
    file = path.with_suffix(".json") if path.suffix == ".npz" else path
    if not file.is_file():
        raise ConfigError(f"{printable(file)}: no such file.")
    return [file]


def load_episode(file: Path) -> tuple[Episode, dict[str, Any]]:
    """Read an episode; return it and what is known of what played it.

    Raises:
        ConfigError: It is damaged, or of a newer format.
    """
    try:
        facts = parse_json(read_plain_file(file, LARGEST_MANIFEST_BYTES))
        if not isinstance(facts, dict):
            raise ValueError("it is not a mapping")
        if facts.get("format") != FORMAT:
            raise ValueError(f"format {facts.get('format')!r} is not {FORMAT}, which is known here")
        data = read_plain_file(file.with_suffix(".npz"), _LARGEST_ARRAYS_BYTES)
        if hashlib.sha256(data).hexdigest() != facts["sha256"]:
            raise ValueError(f"{file.stem}.npz is not the file that was written with it")
        arrays = read_arrays(BytesIO(data), _LARGEST_ARRAYS_BYTES)
        return _episode_of(facts, arrays), _about_of(facts)
    except FileNotFoundError as error:
        raise ConfigError(f"{printable(error.filename)}: no such file.") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{printable(file)} is no whole episode: {one_line(error)}.") from error


def _arrays_of(episode: Episode) -> dict[str, np.ndarray]:
    names = ("actions", "rewards", "digests")
    arrays: dict[str, np.ndarray] = {name: getattr(episode, name) for name in names}
    arrays |= {f"{_TERM}{name}": values for name, values in episode.terms.items()}
    if episode.values is not None:
        arrays["values"] = episode.values
    last = episode.last_observation
    if isinstance(last, dict):
        return arrays | {f"{_LAST}/{key}": np.asarray(part) for key, part in last.items()}
    return arrays | {_LAST: np.asarray(last)}


def _npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return arrays as `np.load` reads them, the same bytes for the same numbers."""
    data = BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, array in arrays.items():
            content = BytesIO()
            npy.write_array(content, np.array(array, order="C"), allow_pickle=False)
            # Without the time of day.
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue())
    return data.getvalue()


def _episode_of(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> Episode:
    last: Any = arrays.get(_LAST)
    if last is None:
        parts = {name: part for name, part in arrays.items() if name.startswith(f"{_LAST}/")}
        last = {name.removeprefix(f"{_LAST}/"): part for name, part in parts.items()}
    terms = {n.removeprefix(_TERM): part for n, part in arrays.items() if n.startswith(_TERM)}
    episode = Episode(
        seed=facts["seed"],
        actions=arrays["actions"],
        rewards=arrays["rewards"],
        terms=terms,
        values=arrays.get("values"),
        digests=arrays["digests"],
        value_kind=facts["value_kind"],
        last_observation=last,
        end_reason=facts["end_reason"],
        terminated=facts["terminated"],
        success=facts["success"],
    )
    n_steps = len(episode.rewards)
    rows = [episode.rewards, episode.digests, *terms.values()]
    rows += [] if episode.values is None else [episode.values]
    if n_steps == 0 or any(row.shape != (n_steps,) for row in rows):
        raise ValueError("its arrays are not of one length")
    if episode.actions.ndim == 0 or len(episode.actions) != n_steps:
        raise ValueError("it has another number of actions than of rewards")
    if type(episode.seed) is not int or not 0 <= episode.seed < 2**32:
        raise ValueError(f"seed {episode.seed!r} is not a whole number below 2**32")
    if not isinstance(episode.end_reason, str) or episode.value_kind not in ("V", "Q", None):
        raise ValueError("its end_reason or value_kind is malformed")
    if type(episode.terminated) is not bool or episode.success not in (True, False, None):
        raise ValueError("its terminated or success is malformed")
    return episode


def _about_of(facts: dict[str, Any]) -> dict[str, Any]:
    about = facts.get("about")
    if not isinstance(about, dict):
        raise ValueError("about is not a mapping")
    overrides = about.get("overrides", [])
    if not isinstance(overrides, list) or not all(isinstance(o, str) for o in overrides):
        raise ValueError("overrides is not a list of texts")
    if not isinstance(about.get("run", ""), str) or "\0" in about.get("run", ""):
        raise ValueError("run is not a path")
    return {**about, "overrides": overrides}
