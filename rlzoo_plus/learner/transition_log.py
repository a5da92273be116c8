"""The log of transitions: what was done, appended before anything else is done, for ever.

It is the queue between the process that acts and the one that learns, and all of a run's
experience: a transition that is in the file outlasts the death of both. A first line in JSON names
the spaces; then comes a record for each transition: its length, the CRC-32 of the rest, fixed
fields, the arrays in the order of the spaces, and JSON for what else the environment said.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.untrusted import parse_json, printable
from rlzoo_plus.envs.plain_state import is_plain, to_plain
from rlzoo_plus.envs.spaces import Space, encode_space, parts_of
from rlzoo_plus.errors import ConfigError

FILE = "transitions.bin"
_FORMAT = 1
_HEAD = struct.Struct("<II")  # Length of the rest, and its CRC
_FIXED = struct.Struct("<qqdB")  # Number, step of the weights, reward, flags
_FIRST, _TERMINATED, _TRUNCATED, _FOLLOWED = 1, 2, 4, 8
# Of an info, what the transition has anyway, or what is large.
_LEFT_OUT = {"reward_terms", "terminal_observation", "TimeLimit.truncated"}
_LONGEST_HEADER, _LONGEST_RECORD = 2**20, 2**26


@dataclass(frozen=True)
class Transition:
    """One step of the environment, observations as one environment gives them."""

    number: int  # From 0
    weights_step: int  # Transitions that the weights that chose the action were made with
    is_first: bool  # Whether an episode begins with it that no `following` has announced
    terminated: bool
    truncated: bool
    reward: float
    observation: Any  # An array, or a dictionary of such
    next_observation: Any
    action: np.ndarray
    info: dict[str, Any]  # Plain data of the environment's info
    following: Any = None  # First observation of the next episode, where it is known already

    @property
    def done(self) -> bool:
        """Whether the episode ended."""
        return self.terminated or self.truncated


class Layout:
    """How transitions of some spaces are bytes."""

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        """Note the spaces: arrays, or dictionaries of arrays; actions may be numbers of choices."""
        self._is_dict = isinstance(observation_space, spaces.Dict)
        self._parts = parts_of(observation_space)
        self._action = action_space
        spaces_of = {"observation": observation_space, "action": action_space}
        described = {name: encode_space(space) for name, space in spaces_of.items()}
        self._described = {"format": _FORMAT, **described}

    def header(self, first: int) -> bytes:
        """Return the first line of a log that begins with transition `first`."""
        begins = {"first": first} if first else {}
        return json.dumps({**self._described, **begins}).encode() + b"\n"

    def pack(self, row: Transition) -> bytes:
        """Return the record of a transition."""
        flags = row.is_first * _FIRST + row.terminated * _TERMINATED + row.truncated * _TRUNCATED
        flags += _FOLLOWED * (row.following is not None)
        action = np.asarray(row.action, self._action.dtype).tobytes()
        rest = b"".join(
            (
                _FIXED.pack(row.number, row.weights_step, row.reward, flags),
                *self._bytes_of(row.observation),
                *self._bytes_of(row.next_observation),
                action,
                *(() if row.following is None else self._bytes_of(row.following)),
                json.dumps(row.info, default=methodcaller("tolist")).encode() if row.info else b"",
            )
        )
        return _HEAD.pack(len(rest), zlib.crc32(rest)) + rest

    def unpack(self, rest: bytes) -> Transition:
        """Return the transition of a record without its head.

        Raises:
            ValueError: It is of other spaces.
        """
        number, weights_step, reward, flags = _FIXED.unpack_from(rest)
        view, start = memoryview(rest), _FIXED.size
        observation, start = self._arrays_in(view, start)
        after, start = self._arrays_in(view, start)
        action, start = _array_in(view, start, self._action)
        begins = None
        if flags & _FOLLOWED:
            begins, start = self._arrays_in(view, start)
        is_first, terminated, truncated = (
            bool(flags & flag) for flag in (_FIRST, _TERMINATED, _TRUNCATED)
        )
        info = parse_json(rest[start:], allow_nan=True) if start < len(rest) else {}
        return Transition(
            *(number, weights_step, is_first, terminated, truncated, reward),
            *(observation, after, action, info, begins),
        )

    def _bytes_of(self, observation: Any) -> list[bytes]:
        values = observation if self._is_dict else {"": observation}
        return [np.asarray(values[k], part.dtype).tobytes() for k, part in self._parts.items()]

    def _arrays_in(self, view: memoryview, start: int) -> tuple[Any, int]:
        found = {}
        for key, part in self._parts.items():
            found[key], start = _array_in(view, start, part)
        return (found if self._is_dict else found[""]), start


def kept_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is kept of an info with its transition: plain data, unless it is large."""
    return {k: to_plain(v) for k, v in info.items() if k not in _LEFT_OUT and is_plain(v)}


def _array_in(view: memoryview, start: int, space: Space) -> tuple[np.ndarray, int]:
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    count = int(np.prod(shape, dtype=np.int64))
    array = np.frombuffer(view, dtype, count, start).reshape(shape).copy()
    return array, start + array.nbytes


class LogReader:
    """Reads transitions while another process may append some."""

    def __init__(self, path: Path, layout: Layout, first: int = 0) -> None:
        """Open the log, whose first transition has the number `first`.

        Raises:
            ConfigError: It is missing, or of other spaces.
        """
        self._path, self._layout = path, layout
        try:
            check_inside(path.parent, path)
            self._descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{printable(path)} cannot be read: {error.strerror}.") from error
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            line = file.readline(_LONGEST_HEADER)
        if line != layout.header(first):
            self.close()
            _check_header(path, line)
        self._begin = self.offset = len(line)
        self._first = self._number = first

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def row(self, number: int) -> Transition | None:
        """Return a transition; None if it is not there yet.

        Raises:
            ConfigError: The log is damaged.
        """
        if number < self._number:
            self.offset, self._number = self._begin, self._first
        assert number >= self._first
        while True:
            rest = self._rest_at(self.offset)
            if rest is None:
                return None
            if self._number == number:
                break
            self.offset += _HEAD.size + len(rest)
            self._number += 1
        try:
            row = self._layout.unpack(rest)
        except (ValueError, struct.error) as error:
            raise self._damaged() from error
        if row.number != number:
            raise self._damaged()
        return row

    def count(self) -> int:
        """Return the number after the last whole transition; `offset` is then where they end.

        Raises:
            ConfigError: One of them is damaged; what is incomplete at the end is not counted.
        """
        while (rest := self._rest_at(self.offset)) is not None:
            if _FIXED.unpack_from(rest)[0] != self._number:
                raise self._damaged()
            self.offset += _HEAD.size + len(rest)
            self._number += 1
        return self._number

    def _rest_at(self, offset: int) -> bytes | None:
        head = os.pread(self._descriptor, _HEAD.size, offset)
        if len(head) < _HEAD.size:
            return None
        length, crc = _HEAD.unpack(head)
        rest = b""
        if _FIXED.size <= length <= _LONGEST_RECORD:
            rest = os.pread(self._descriptor, length, offset + _HEAD.size)
        if rest and len(rest) == length and zlib.crc32(rest) == crc:
            return rest
        # What is being written, or was when the machine lost its power, is at the end; then there
        # may be zeros in its place.
        size = os.fstat(self._descriptor).st_size
        is_zeros = length == 0 and not any(os.pread(self._descriptor, size - offset, offset))
        if size > offset + _HEAD.size + length and not is_zeros:
            raise self._damaged()
        return None

    def _damaged(self) -> ConfigError:
        where = f"{printable(self._path)}: transition {self._number} is damaged"
        return ConfigError(f"{where}. Start again in another run_dir, with init_from of this run.")


class LogWriter:
    """Appends transitions; one process at a time.

    Attributes:
        count: The number after the last: how many there are, in a log that begins with 0.
        size: Bytes of the log.
    """

    def __init__(self, path: Path, layout: Layout, first: int = 0, together: int = 1) -> None:
        """Open the log, or begin it; what a lost power left incomplete at its end is cut off.

        Args:
            path: Of the log.
            layout: How transitions are bytes.
            first: Number of its first transition.
            together: Transitions of one step of all environments: none of them stays alone.

        Raises:
            ConfigError: It is of other spaces, damaged, or cannot be written.
        """
        self._layout = layout
        try:
            check_inside(path.parent, path)
            if not path.exists():
                write_atomic(path, layout.header(first))
            self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise ConfigError(f"{printable(path)} cannot be written: {error.strerror}.") from error
        reader = LogReader(path, layout, first)
        self.count = reader.count()
        if alone := self.count % together:
            self.count -= alone
            reader.row(self.count)
        self.size = reader.offset
        os.ftruncate(self._descriptor, self.size)
        reader.close()

    def add(self, *rows: Transition) -> None:
        """Append transitions: when this returns, the death of this process does not lose them.

        Raises:
            OSError: The disk refuses.
        """
        records = b"".join(self._layout.pack(row) for row in rows)
        if os.write(self._descriptor, records) != len(records):
            raise OSError("the disk is full")
        self.count += len(rows)
        self.size += len(records)

    def close(self) -> None:
        """Bring it to the disk, and close it."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)


def _check_header(path: Path, line: bytes) -> None:
    """Raise what is wrong with the first line of a log."""
    name = printable(path)
    try:
        version = parse_json(line)["format"]
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{name} is no log of transitions. Choose another run_dir.") from None
    if version != _FORMAT:
        raise ConfigError(f"{name} is of format {printable(version)}, which is not known here.")
    raise ConfigError(
        f"{name} is of other observations or actions than this task has. Choose another run_dir, "
        "or go on with the env that it was begun with."
    )
