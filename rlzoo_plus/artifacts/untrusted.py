"""Reads files from untrusted sources: plain files only, bounded, and safe to print.

Python's own readers are too kind for that: a FIFO blocks, a link leads elsewhere, a JSON key can
come twice, YAML anchors multiply, and a name can hold terminal escape sequences.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Hashable, Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unicodedata import category

import yaml
from pydantic import ValidationError

LARGEST_YAML_BYTES = 2**18
LARGEST_MANIFEST_BYTES = 2**22
LONGEST_RECORD_BYTES = 2**24
DEEPEST_NESTING = 100
LONGEST_MESSAGE = 400
LONGEST_LINE = 10_000
# Unicode's control, format and surrogate characters: they steer a terminal, or hide text.
_STEERING = ("Cc", "Cf", "Cs")
# Missing on Windows, where the checks after opening must do.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def printable(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """Return text on one line, cut to a length, with control characters written as escapes."""
    whole = str(text)
    shown = "".join(c if c.isprintable() else _escaped(c) for c in whole[:longest])
    return shown if len(whole) <= longest else shown + "..."


def printable_lines(text: object, longest: int = LONGEST_LINE) -> str:
    """Return text of several lines, each cut to a length, with all but newlines made visible."""
    return "\n".join(printable(line, longest) for line in str(text).split("\n"))


def one_line(error: Exception) -> str:
    """Return what an error says on one line, without what only a developer needs."""
    if isinstance(error, ValidationError):
        # Its own text begins with a line that says nothing.
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        said = first["msg"].removeprefix("Value error, ")
        return printable(f"{where or 'all of it'}: {said}")
    if isinstance(error, KeyError):
        return printable(f"{error} is missing")
    # torch adds its C++ stack.
    lines = str(error).splitlines() or [type(error).__name__]
    return printable(lines[0].rstrip("."))


def has_control_characters(value: Any) -> bool:
    """Return whether a string in nested plain data could steer a terminal."""
    open_values = [value]
    while open_values:
        item = open_values.pop()
        if isinstance(item, str):
            # None of them is printable, and few texts have other characters.
            steers = not item.isprintable() and any(
                category(c) in _STEERING and c not in "\n\t" for c in item
            )
            if steers:
                return True
        elif isinstance(item, dict):
            open_values += [*item.keys(), *item.values()]
        elif isinstance(item, (list, tuple)):
            open_values += item
    return False


def read_plain_file(path: Path, largest: int) -> bytes:
    """Read a file that is neither a link nor a device; it never blocks.

    Args:
        path: The file.
        largest: The most that is read [bytes].

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is no plain file, or larger.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise ValueError(f"has {size} bytes, more than {largest}")
        # Not the limit, which may be what a manifest claims: that much would be allocated.
        data = file.read(size + 1)
    if len(data) > size:
        raise ValueError("grew while it was read")
    return data


def read_plain_part(path: Path, start: int, most: int) -> bytes:
    """Read part of a file that is neither a link nor a device; it never blocks.

    Args:
        path: The file.
        start: Where to begin [bytes].
        most: The most that is read [bytes].

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is no plain file.
    """
    with open_plain(path) as file:
        file.seek(start)
        return file.read(most)


def read_plain_lines(path: Path, longest: int = LONGEST_RECORD_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file of any size, without their ends; one that is too long ends it.

    Args:
        path: The file.
        longest: The most bytes of a line.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is no plain file.
    """
    with open_plain(path) as file:
        while line := file.readline(longest + 1):
            if len(line) > longest:
                return
            yield line.rstrip(b"\r\n")


def read_plain_tail(path: Path, most: int) -> list[bytes]:
    """Return the last whole lines of a plain file of any size; without one there are none.

    Args:
        path: The file.
        most: So much of its end is read [bytes]; a line that begins before is left out.
    """
    try:
        with open_plain(path) as file:
            start = max(os.fstat(file.fileno()).st_size - most, 0)
            file.seek(start)
            lines = file.read(most).split(b"\n")
    except (OSError, ValueError):
        return []
    return lines[1:] if start else lines


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is no plain file.
    """
    # os.open alone would follow links on systems without O_NOFOLLOW.
    if path.is_symlink():
        raise ValueError("is a link")
    file = os.fdopen(os.open(path, _OPEN_FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("is not a plain file")
    return file


def parse_json(data: bytes, *, allow_nan: bool = False) -> Any:
    """Parse UTF-8 JSON strictly: no key twice, no NaN or infinity, no deep nesting.

    Args:
        data: The text.
        allow_nan: Accept NaN and infinities, which Python writes.

    Raises:
        ValueError: It is something else.
    """
    try:
        value = json.loads(
            data.decode(),
            object_pairs_hook=_unique,
            parse_constant=float if allow_nan else _refuse_constant,
            parse_float=float if allow_nan else _finite,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    return value


def parse_yaml(data: bytes) -> Any:
    """Parse YAML of plain data, without tags for objects, anchors or a key twice.

    Raises:
        ValueError: It is something else.
    """
    try:
        value = yaml.load(data.decode(), Loader=_PlainLoader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (TypeError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"it is no plain YAML ({error!r})") from None
    _check_depth(value)
    return value


class _PlainLoader(yaml.SafeLoader):
    """PyYAML's safe loader without aliases: a few of them can stand for billions of values."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("it has YAML anchors, which are never written here")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        mapping = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise yaml.YAMLError("it has a key twice")
        return mapping


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("it has a key twice")
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"it has {name}, which JSON does not know")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("it has a number beyond all floats")
    return value


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEEPEST_NESTING:
            raise ValueError("it is nested too deeply")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, (list, tuple)):
                below += item
        level = below


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; without one, or if it is damaged, it is empty."""
    try:
        # What Python wrote: a mean return can be NaN.
        data = parse_json(read_plain_file(path, LARGEST_MANIFEST_BYTES), allow_nan=True)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
