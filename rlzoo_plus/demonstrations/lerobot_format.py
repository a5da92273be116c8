"""Reads and writes datasets in the format of LeRobot, version 3.0: Parquet files and JSON.

LeRobot keeps what was seen before each action, and not what the last one led to. So the last step
of an episode is left out when a dataset is read, and none counts as terminated. It keeps no spaces
either: they are those of the task that it is read for.

Source: https://huggingface.co/docs/lerobot/lerobot-dataset-v3
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
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
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration, check_episode
from rlzoo_plus.demonstrations.minari_format import (
    LARGEST_BYTES,
    LARGEST_FILE_BYTES,
    MOST_STEPS,
)
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

if find_spec("pyarrow") is None:
    raise ConfigError("LeRobot's format needs pyarrow: pip install 'rlzoo-plus[lerobot]'.")
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

INFO = Path("meta", "info.json")
_VERSION = "v3.0"
_FILE = Path("chunk-000", "file-000.parquet")
_PATTERN = "chunk-{chunk_index:03d}/file-{file_index:03d}"
_ACTION, _REWARD, _DONE = "action", "next.reward", "next.done"
_STATE = "observation.state"
_QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
# Where an environment does not say how many steps a second has.
_USUAL_FPS = 30
_MOST_FILES = 10_000
_FAILURES = (OSError, ValueError, KeyError, TypeError, OverflowError, pa.ArrowException)


def write_lerobot(path: Path, dataset: Dataset) -> None:
    """Write a dataset as LeRobot reads it; `meta/info.json` last, so that it is there whole or not.

    Raises:
        ConfigError: There is something already, it has pictures, or it cannot be written.
    """
    where = printable(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise ConfigError(f"{where} holds files already. Name a new folder.")
        _write(path, dataset)
    except OSError as error:
        raise ConfigError(f"{where} cannot be written: {error.strerror or error}.") from error


def read_lerobot(
    path: Path, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
) -> Dataset:
    """Read a dataset for a task; every number in it is checked.

    Args:
        path: A folder.
        observation_space: Of the task; a Dict takes `observation.KEY` for each key.
        action_space: Of the task.

    Raises:
        ConfigError: It is damaged, too large, or of another task.
    """
    names = {**_observations(observation_space), _ACTION: action_space}
    try:
        info = parse_json(read_plain_file(path / INFO, LARGEST_MANIFEST_BYTES), allow_nan=True)
        _check_info(info, names)
        columns = _read_columns(path / "data", [*names, *({_REWARD} & info["features"].keys())])
        found = Dataset(
            observation_space,
            action_space,
            list(_episodes(columns, observation_space, action_space)),
            {"description": "a dataset of LeRobot"},
        )
        for number in range(len(found.episodes)):
            check_episode(found, number)
            _check_actions(found.episodes[number].actions, action_space)
    except _FAILURES as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"{printable(path)} is no dataset of LeRobot that can be read: {one_line(error)}."
        ) from error
    if not found.episodes:
        raise ConfigError(f"{printable(path)} has no episode of two steps or more.")
    return found


def _observations(space: spaces.Space[Any]) -> dict[str, spaces.Space[Any]]:
    """Return the parts of an observation by LeRobot's names for them."""
    if isinstance(space, spaces.Dict):
        return {f"observation.{key}": part for key, part in parts_of(space).items()}
    return {_STATE: space}


def _write(path: Path, dataset: Dataset) -> None:
    fps = max(1, round(dataset.rate_hz or _USUAL_FPS))
    features = {name: _feature(name, space) for name, space in (
        *_observations(dataset.observation_space).items(), (_ACTION, dataset.action_space),
    )} | {_REWARD: _plain("float32"), _DONE: _plain("bool")}  # fmt: skip
    tables = [_table(n, episode, features, fps) for n, episode in enumerate(dataset.episodes)]
    starts = np.cumsum([0, *(len(table) for table in tables)])
    tables = [
        table.append_column("index", pa.array(np.arange(start, start + len(table))))
        for table, start in zip(tables, starts[:-1], strict=True)
    ]
    task = dataset.about.get("description", "a task")
    for folder in ("data", "meta/episodes"):
        (path / folder / _FILE.parent).mkdir(parents=True)
    with pq.ParquetWriter(path / "data" / _FILE, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    pq.write_table(_episode_table(starts, task), path / "meta" / "episodes" / _FILE)
    tasks = pd.DataFrame({"task_index": [0]}, index=pd.Index([task], name="task"))
    tasks.to_parquet(path / "meta" / "tasks.parquet")
    own = {name: _plain("int64") for name in ("frame_index", "episode_index", "index")}
    features |= {"timestamp": _plain("float32"), **own, "task_index": _plain("int64")}
    whole = pa.concat_tables(tables)
    write_json(path / "meta" / "stats.json", {name: _stats(whole, name) for name in features})
    info = {
        "codebase_version": _VERSION,
        "fps": fps,
        "features": features,
        "total_episodes": len(tables),
        "total_frames": len(whole),
        "total_tasks": 1,
        "chunks_size": 1000,
        "data_files_size_in_mb": 100,
        "video_files_size_in_mb": 200,
        "data_path": f"data/{_PATTERN}.parquet",
        "video_path": None,
        "robot_type": None,
        "splits": {"train": f"0:{len(tables)}"},
    }
    write_json(path / INFO, info)


def _plain(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1], "names": None}


def _feature(name: str, space: spaces.Space[Any]) -> dict[str, Any]:
    """Return how LeRobot describes a part of an observation, or an action."""
    shape = space.shape or (1,)
    if len(shape) > 1 or space.dtype is None:
        raise ConfigError(
            f"{name} has the shape {shape}; of LeRobot's format vectors are written, no pictures. "
            "Write the dataset in Minari's format: leave out --format."
        )
    return {"dtype": str(space.dtype), "shape": list(shape), "names": None}


def _table(number: int, episode: Demonstration, features: Mapping[str, Any], fps: int) -> pa.Table:
    """Return the frames of an episode, without their place in the dataset."""
    count = episode.n_steps
    frames = np.arange(count)
    seen = episode.observations
    parts = {f"observation.{key}": rows for key, rows in seen.items()} if isinstance(
        seen, dict) else {_STATE: seen}  # fmt: skip
    rows = {name: values[:-1] for name, values in parts.items()}
    rows |= {_ACTION: episode.actions, _REWARD: episode.rewards, _DONE: frames == count - 1}
    columns = {
        name: _column(np.asarray(values, features[name]["dtype"]).reshape(count, -1))
        for name, values in rows.items()
    }
    columns |= {
        "timestamp": pa.array((frames / fps).astype(np.float32)),
        "frame_index": pa.array(frames),
        "episode_index": pa.array(np.full(count, number)),
        "task_index": pa.array(np.zeros(count, np.int64)),
    }
    return pa.table(columns)


def _column(rows: np.ndarray) -> pa.Array:
    """Return rows of numbers as lists of one length, or as numbers where they have one each."""
    flat = pa.array(rows.ravel())
    return flat if rows.shape[1] == 1 else pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _episode_table(starts: np.ndarray, task: str) -> pa.Table:
    """Return where each episode is."""
    count = len(starts) - 1
    zeros = pa.array(np.zeros(count, np.int64))
    return pa.table(
        {
            "episode_index": pa.array(np.arange(count)),
            "tasks": pa.array([[task]] * count),
            "length": pa.array(np.diff(starts)),
            **{f"data/{name}_index": zeros for name in ("chunk", "file")},
            "dataset_from_index": pa.array(starts[:-1]),
            "dataset_to_index": pa.array(starts[1:]),
            **{f"meta/episodes/{name}_index": zeros for name in ("chunk", "file")},
        }
    )


def _stats(table: pa.Table, name: str) -> dict[str, list[float]]:
    """Return the statistics of a column that LeRobot normalizes by, one number an entry."""
    rows = _rows(table, name).astype(np.float64)
    found = {"min": rows.min(0), "max": rows.max(0), "mean": rows.mean(0), "std": rows.std(0)}
    found |= {key: np.quantile(rows, share, axis=0) for key, share in _QUANTILES.items()}
    return {**{key: value.tolist() for key, value in found.items()}, "count": [len(rows)]}


def _check_info(info: Any, names: Mapping[str, spaces.Space[Any]]) -> None:
    """Raise a ValueError if a dataset has another version, or not the entries of a task."""
    if not isinstance(info, dict) or not isinstance(info.get("features"), dict):
        raise ValueError(f"{INFO} does not describe its features")
    version = info.get("codebase_version")
    if not isinstance(version, str) or not version.startswith("v3."):
        raise ValueError(
            f"its codebase_version is {printable(repr(version))}, and {_VERSION} is read; "
            "LeRobot's convert_dataset_v21_to_v30 converts older ones"
        )
    for name, space in names.items():
        described = info["features"].get(name)
        if not isinstance(described, dict):
            there = printable(", ".join(sorted(map(str, info["features"]))))
            raise ValueError(f"it has no {name}, which the task needs; it has {there}")
        wanted = list(space.shape or (1,))
        if described.get("shape") != wanted:
            shape = printable(described.get("shape"))
            raise ValueError(f"{name} has the shape {shape}, and {wanted} is that of the task")


def _read_columns(folder: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Return columns of all files as rows of numbers, shape (steps, entries of one step)."""
    files = sorted(folder.glob("chunk-*/file-*.parquet"))[: _MOST_FILES + 1]
    if not 0 < len(files) <= _MOST_FILES:
        raise ValueError(f"it has {len(files)} data files, and needs 1 to {_MOST_FILES:,}")
    wanted = [*names, "episode_index", "frame_index"]
    parts: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    left_bytes, left_rows = LARGEST_BYTES, MOST_STEPS
    for path in files:
        with open_plain(path) as plain:
            if os.fstat(plain.fileno()).st_size > LARGEST_FILE_BYTES:
                raise ValueError(f"{path.name} is larger than {LARGEST_FILE_BYTES} bytes")
            parquet = pq.ParquetFile(plain)
            facts = parquet.metadata
            groups = [facts.row_group(k) for k in range(facts.num_row_groups)]
            left_bytes -= sum(group.total_byte_size for group in groups)
            left_rows -= facts.num_rows
            if min(left_bytes, left_rows) < 0:
                raise ValueError("it claims more than 8 GiB or 100 million steps")
            missing = set(wanted) - set(parquet.schema_arrow.names)
            if missing:
                raise ValueError(f"{path.name} has no column {min(missing)}")
            table = parquet.read(columns=wanted, use_threads=False)
        for name in wanted:
            parts[name].append(_rows(table, name))
    return {name: np.concatenate(rows) for name, rows in parts.items()}


def _rows(table: pa.Table, name: str) -> np.ndarray:
    """Return a column of numbers, or of lists of them of one length, as rows."""
    column = table.column(name).combine_chunks()
    if column.null_count:
        raise ValueError(f"{name} has empty entries")
    width = 1
    if pa.types.is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        lengths = pc.list_value_length(column).unique()
        width, column = (lengths[0].as_py() if len(lengths) else 1), column.flatten()
        if len(lengths) > 1 or column.null_count:
            raise ValueError(f"{name} has entries of several lengths")
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise ValueError(f"{name} holds {printable(kind)}, not plain numbers")
    return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(-1, width)


def _episodes(
    columns: Mapping[str, np.ndarray],
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
) -> Iterator[Demonstration]:
    number, frame = columns["episode_index"][:, 0], columns["frame_index"][:, 0]
    cuts = np.flatnonzero(np.diff(number)) + 1
    if len(np.unique(number)) != len(cuts) + 1:
        raise ValueError("its episodes are not one after the other")
    for rows in np.split(np.arange(len(number)), cuts):
        if not np.array_equal(frame[rows], np.arange(len(rows))):
            raise ValueError(f"episode {number[rows[0]]}: its frames are not counted from 0")
        if len(rows) < 2:
            continue
        seen = {
            name: _shaped(columns[name][rows], space)
            for name, space in _observations(observation_space).items()
        }
        keys = {name: name.removeprefix("observation.") for name in seen}
        named = {keys[name]: part for name, part in seen.items()}
        rewards = columns[_REWARD][rows[:-1], 0] if _REWARD in columns else np.zeros(len(rows) - 1)
        yield Demonstration(
            observations=named if isinstance(observation_space, spaces.Dict) else seen[_STATE],
            actions=_shaped(columns[_ACTION][rows[:-1]], action_space),
            rewards=rewards.astype(np.float64),
            terminated=False,
        )


def _shaped(rows: np.ndarray, space: spaces.Space[Any]) -> np.ndarray:
    """Return rows in the shape and type of a space."""
    if np.issubdtype(space.dtype, np.integer) and not np.issubdtype(rows.dtype, np.integer):
        raise ValueError(f"numbers of the type {rows.dtype} are none of {space}")
    return rows.reshape(len(rows), *(space.shape or ())).astype(space.dtype)


def _check_actions(actions: np.ndarray, space: spaces.Space[Any]) -> None:
    """Raise a ValueError if an action is beyond the bounds of its space: likely in other units."""
    if not isinstance(space, spaces.Box):
        return
    room = 1e-4 * np.maximum(1, np.abs(np.where(np.isfinite(space.high), space.high, 1)))
    beyond = (actions < space.low - room) | (actions > space.high + room)
    if beyond.any():
        at = tuple(np.argwhere(beyond)[0])
        raise ValueError(
            f"an action has {actions[at]:g} in entry {at[-1]}, and the task takes "
            f"{space.low[at[1:]]:g} to {space.high[at[1:]]:g}: convert them to the task's units"
        )
