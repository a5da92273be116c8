"""Reads and writes datasets in the format of Minari: a folder with one HDF5 file and metadata.

A dataset may be somebody else's. HDF5 can lead to other files (external and soft links, external
and virtual data), claim sizes that it does not have, and hold texts, objects and references; none
of that is followed or read. Of the metadata, the specification of an environment and requirements
are not used.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    open_plain,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration, Rows, check_episode
from rlzoo_plus.envs.spaces import LARGEST_SPACE, decode_space
from rlzoo_plus.errors import ConfigError

if find_spec("h5py") is None:
    raise ConfigError("demonstrations need h5py. Install it: pip install 'rlzoo-plus[data]'.")
import h5py

_OF_LEROBOT = Path("meta", "info.json")
DATA, METADATA = "main_data.hdf5", "metadata.json"
MOST_EPISODES, MOST_STEPS = 100_000, 100_000_000
LARGEST_FILE_BYTES = LARGEST_BYTES = 2**33
# What a compressed file may unfold to, beside what any file may.
_MOST_EXPANSION, _SMALL_BYTES = 100, 2**26
# deflate, shuffle, fletcher32 and LZF: what h5py brings; HDF5 would load others from files.
_FILTERS = {1, 2, 3, 32_000}
_VERSION = "0.5.4"
# What is kept of the metadata, as text.
_ABOUT = ("dataset_id", "algorithm_name", "description", "code_permalink", "environment")
_FAILURES = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, OverflowError)


def is_dataset(path: Path) -> bool:
    """Return whether a folder looks like a dataset of Minari."""
    return _data_folder(path) is not None


def _data_folder(path: Path) -> Path | None:
    """Return the folder with the two files: the one named, or `data/` in it, as Minari has it."""
    places = (path, path / "data")
    return next((place for place in places if (place / METADATA).is_file()), None)


def digest(path: Path) -> str:
    """Return a hash of the content of a dataset.

    Raises:
        ConfigError: There is no dataset.
    """
    found = hashlib.sha256()
    try:
        for name in (METADATA, DATA):
            with open_plain(_place(path) / name) as file:
                while part := file.read(2**20):
                    found.update(part)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return found.hexdigest()


def read_dataset(path: Path) -> Dataset:
    """Read a dataset; every number in it is checked.

    Raises:
        ConfigError: It is damaged, too large, or holds something else than numbers.
    """
    try:
        folder = _place(path)
        facts = _facts_of(folder)
        dataset = Dataset(facts["observation"], facts["action"], list(_episodes(folder, facts)),
                          facts["about"])  # fmt: skip
        for number in range(len(dataset.episodes)):
            check_episode(dataset, number)
    except _FAILURES as error:
        raise _unreadable(path, error) from error
    return dataset


def read_facts(path: Path) -> dict[str, Any]:
    """Return what the metadata alone say: spaces, numbers of episodes and steps, and texts.

    Raises:
        ConfigError: They are damaged.
    """
    try:
        return _facts_of(_place(path))
    except _FAILURES as error:
        raise _unreadable(path, error) from error


def write_dataset(path: Path, dataset: Dataset) -> None:
    """Write a dataset as Minari reads it; its metadata last, so that it is there whole or not.

    Raises:
        ConfigError: There is something already, or it cannot be written.
    """
    where, data = printable(path), path / "data"
    described = {
        "observation_space": json.dumps(_described(dataset.observation_space)),
        "action_space": json.dumps(_described(dataset.action_space)),
    }
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"{where} holds files already. Name a new folder.")
        data.mkdir()
        with h5py.File(data / DATA, "x", track_order=True) as file:
            for number, episode in enumerate(dataset.episodes):
                _write_episode(file.create_group(f"episode_{number}"), number, episode)
        facts = {
            "total_episodes": len(dataset.episodes),
            "total_steps": dataset.n_steps,
            "data_format": "hdf5",
            "jpeg_encoding": False,
            "minari_version": _VERSION,
            "dataset_size": round((data / DATA).stat().st_size / 1e6, 1),
            **described,
            **dataset.about,
        }
        write_json(data / METADATA, facts)
    except OSError as error:
        raise ConfigError(f"{where} cannot be written: {error.strerror or error}.") from error


def _place(path: Path) -> Path:
    folder = _data_folder(path)
    if folder is None:
        if (path / _OF_LEROBOT).is_file():
            raise ValueError(
                "it is in LeRobot's format, which does not know the task's spaces: "
                f"rlzoo-plus collect {shlex.quote(str(path))} --run RUN --out DATASET"
            )
        raise ValueError(f"it has no {METADATA}, neither in it nor in data/")
    return folder


def _unreadable(path: Path, error: Exception) -> ConfigError:
    if isinstance(error, ConfigError):
        return error
    return ConfigError(f"{printable(path)} is no dataset that can be read: {one_line(error)}.")


def _facts_of(folder: Path) -> dict[str, Any]:
    given = parse_json(read_plain_file(folder / METADATA, LARGEST_MANIFEST_BYTES), allow_nan=True)
    if not isinstance(given, dict):
        raise ValueError("its metadata is not a mapping")
    if given.get("data_format", "hdf5") != "hdf5":
        raise ValueError(f"its format is {given['data_format']!r}, and only hdf5 is read")
    counts = {}
    for key, most in (("total_episodes", MOST_EPISODES), ("total_steps", MOST_STEPS)):
        count = given.get(key)
        if type(count) is not int or not 0 < count <= most:
            raise ValueError(f"its {key} is {count!r}, not a whole number from 1 to {most:,}")
        counts[key] = count
    found = {}
    for name in ("observation", "action"):
        text = given.get(f"{name}_space")
        if not isinstance(text, str):
            raise ValueError(f"it does not say its {name}_space, and no environment is made for it")
        found[name] = decode_space(_ours(parse_json(text.encode(), allow_nan=True)))
    about = {key: printable(given[key]) for key in _ABOUT if isinstance(given.get(key), str)}
    return {**counts, **found, "about": about}


def _ours(data: Any) -> dict[str, Any]:
    """Return Minari's description of a space as `decode_space` takes it."""
    kind = data["type"]
    if kind == "Box":
        bounds = {key: _flat(data[key]) for key in ("low", "high")}
        return {"type": "box", **bounds, "shape": data["shape"], "dtype": data["dtype"]}
    if kind == "Discrete":
        return {"type": "discrete", "n": data["n"], "start": data.get("start", 0)}
    if kind == "MultiDiscrete":
        return {"type": "multi_discrete", "nvec": data["nvec"], "start": data["start"]}
    if kind == "MultiBinary":
        return {"type": "multi_binary", "n": data["n"]}
    if kind == "Dict":
        return {"type": "dict", "spaces": [[k, _ours(s)] for k, s in data["subspaces"].items()]}
    raise ValueError(f"spaces of the kind {kind!r} are not read")


def _flat(bound: Any) -> Any:
    """Return the numbers of nested lists in one, infinities as text."""
    flat, left = [], [bound]
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += reversed(value)
        else:
            flat.append(str(value) if isinstance(value, float) and math.isinf(value) else value)
        if len(flat) > LARGEST_SPACE:
            raise ValueError("a bound has too many numbers")
    return flat if isinstance(bound, list) else flat[0]


def _described(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return a space as Minari describes it."""
    if isinstance(space, spaces.Box):
        bounds = {"low": space.low.tolist(), "high": space.high.tolist()}
        return {"type": "Box", "dtype": str(space.dtype), "shape": list(space.shape), **bounds}
    if isinstance(space, spaces.Discrete):
        return {"type": "Discrete", "dtype": "int64", "start": int(space.start), "n": int(space.n)}
    if isinstance(space, spaces.MultiDiscrete):
        numbers = {"nvec": space.nvec.tolist(), "start": np.asarray(space.start).tolist()}
        return {"type": "MultiDiscrete", "dtype": str(space.dtype), **numbers}
    if isinstance(space, spaces.MultiBinary):
        return {"type": "MultiBinary", "n": np.asarray(space.n).tolist()}
    if isinstance(space, spaces.Dict):
        return {"type": "Dict", "subspaces": {k: _described(s) for k, s in space.spaces.items()}}
    raise ConfigError(f"a space of type {type(space).__name__} cannot be written to a dataset.")


def _write_episode(group: Any, number: int, episode: Demonstration) -> None:
    group.attrs["id"] = number
    group.attrs["total_steps"] = episode.n_steps
    if episode.seed is not None:
        group.attrs["seed"] = episode.seed
    ends = np.zeros(episode.n_steps, bool)
    ends[-1] = True
    rows = {
        "actions": episode.actions,
        "rewards": np.asarray(episode.rewards, np.float64),
        "terminations": ends & episode.terminated,
        "truncations": ends & (not episode.terminated),
    }
    seen = episode.observations
    if isinstance(seen, dict):
        rows |= {f"observations/{key}": part for key, part in seen.items()}
    else:
        rows["observations"] = seen
    for name, values in rows.items():
        # Minari appends to what it can resize.
        shape = (None, *values.shape[1:])
        group.create_dataset(name, data=values, chunks=True, maxshape=shape, compression="gzip")


def _episodes(folder: Path, facts: Mapping[str, Any]) -> Iterator[Demonstration]:
    path = folder / DATA
    with open_plain(path) as plain:
        size = os.fstat(plain.fileno()).st_size
    if size > LARGEST_FILE_BYTES:
        raise ValueError(f"{DATA} has {size} bytes, more than {LARGEST_FILE_BYTES}")
    reader = _Reader(min(LARGEST_BYTES, _SMALL_BYTES + _MOST_EXPANSION * size))
    with h5py.File(path, "r") as file:
        for number in range(facts["total_episodes"]):
            yield reader.episode(file, number, facts["observation"])


class _Reader:
    """Reads arrays of numbers, together of a bounded size."""

    def __init__(self, most_bytes: int) -> None:
        self._left = most_bytes

    def episode(self, file: Any, number: int, space: spaces.Space[Any]) -> Demonstration:
        group = self._member(file, f"episode_{number}", h5py.Group)
        seen: Rows
        if isinstance(space, spaces.Dict):
            parts = self._member(group, "observations", h5py.Group)
            seen = {key: self._array(parts, key) for key in space.spaces}
        else:
            seen = self._array(group, "observations")
        names = ("actions", "rewards", "terminations", "truncations")
        actions, rewards, terminated, cut = (self._array(group, name) for name in names)
        if not (rewards.shape == terminated.shape == cut.shape and rewards.ndim == 1):
            raise ValueError(f"episode {number}: its rewards and ends are not of one length")
        if (terminated | cut)[:-1].any():
            raise ValueError(f"episode {number} goes on after its end")
        is_over = bool(terminated[-1:].any())
        return Demonstration(seen, actions, rewards, is_over, _seed_of(group))

    def _member(self, group: Any, name: str, kind: type) -> Any:
        """Return a member that is in the file itself."""
        link = group.get(name, getlink=True)
        if link is None:
            raise ValueError(f"{name} is missing in {group.name}")
        if not isinstance(link, h5py.HardLink):
            raise ValueError(f"{group.name}/{name} is a link to somewhere else")
        member = group[name]
        if not isinstance(member, kind):
            raise ValueError(f"{group.name}/{name} is no {kind.__name__.lower()}")
        return member

    def _array(self, group: Any, name: str) -> np.ndarray:
        data = self._member(group, name, h5py.Dataset)
        where, plan = f"{group.name}/{name}", data.id.get_create_plist()
        if data.dtype.kind not in "biuf" or data.dtype.itemsize > 8:
            raise ValueError(f"{where} holds {data.dtype}, not plain numbers")
        if plan.get_external_count() or data.is_virtual:
            raise ValueError(f"{where} has its numbers in other files")
        codes = {plan.get_filter(at)[0] for at in range(plan.get_nfilters())}
        if codes - _FILTERS:
            raise ValueError(f"{where} is compressed with a filter that is not known")
        if data.shape is None or data.ndim == 0:
            raise ValueError(f"{where} is no array")
        sizes = [data.shape, *([data.chunks] if data.chunks else [])]
        n_bytes = data.dtype.itemsize * max(math.prod(max(1, n) for n in shape) for shape in sizes)
        self._left -= n_bytes
        if self._left < 0:
            raise ValueError(f"{where} claims the shape {data.shape}, too large for this file")
        return np.asarray(data[...])


def _seed_of(group: Any) -> int | None:
    """Return the seed of an episode, None if it has none that is a whole number."""
    if "seed" not in group.attrs:
        return None
    attribute = group.attrs.get_id("seed")
    if attribute.shape != () or attribute.dtype.kind not in "iu":
        return None
    seed = int(group.attrs["seed"])
    return seed if 0 <= seed < 2**32 else None
