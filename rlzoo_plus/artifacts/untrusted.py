"""Reads files from untrusted sources: plain files only, bounded, and safe to print.

Python's own readers do not suffice: a FIFO blocks, a link leads elsewhere, a JSON key can come
twice, YAML anchors multiply, and a name can hold terminal escape sequences.
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
# In C, some six times as fast, where it is installed.
_SAFE_LOADER: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
# Unicode's control, format and surrogate characters: they control a terminal, or hide text.
_CONTROLS = ("Cc", "Cf", "Cs")
# Missing on Windows, where the checks after opening must do.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def printable(text: object, longest: int = LONGEST_MESSAGE) -> str:
    """Return text on one line, cut to a length, with control characters written as escapes."""
    whole = str(text)
    if len(whole) <= longest and whole.isprintable():
        return whole
    shown = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode()
        for c in whole[:longest]
    )
    return shown if len(whole) <= longest else shown + "..."


def printable_lines(text: object) -> str:
    """Return text of several lines, each as `printable` shows it."""
    return "\n".join(printable(line, LONGEST_LINE) for line in str(text).split("\n"))


def one_line(error: Exception) -> str:
    """Return the message of an error for users, on one line."""
    if isinstance(error, ValidationError):
        # Its own text begins with an uninformative line.
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
    """Return whether a string in nested plain data could control a terminal."""
    return any(
        category(c) in _CONTROLS and c not in "\n\t"
        for level in levels(value)
        for text in level
        # First the quick check: few texts are not printable.
        if isinstance(text, str) and not text.isprintable()
        for c in text
    )


def read_plain_file(path: Path, largest: int) -> bytes:
    """Read a plain file of at most `largest` bytes; it never blocks.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is not a plain file, or larger.
    """
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise ValueError(f"has {size} bytes, more than {largest}")
        # Not the limit: a manifest may claim it, and that much would be allocated.
        data = file.read(size + 1)
    if len(data) > size:
        raise ValueError("grew while it was read")
    return data


def read_plain_part(path: Path, start: int, most: int) -> bytes:
    """Read at most `most` bytes of a plain file from a byte on; it never blocks.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is not a plain file.
    """
    with open_plain(path) as file:
        file.seek(start)
        return file.read(most)


def read_plain_lines(path: Path, longest: int = LONGEST_RECORD_BYTES) -> Iterator[bytes]:
    """Yield the lines of a plain file, without their ends, up to one of more than `longest` bytes.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is not a plain file.
    """
    with open_plain(path) as file:
        while line := file.readline(longest + 1):
            if len(line) > longest:
                return
            yield line.rstrip(b"\r\n")


def read_plain_tail(path: Path, most: int) -> list[bytes]:
    """Return the whole lines in the last `most` bytes of a plain file; none if it is unreadable."""
    try:
        with open_plain(path) as file:
            start = max(os.fstat(file.fileno()).st_size - most, 0)
            file.seek(start)
            lines = file.read(most).split(b"\n")
    except (OSError, ValueError):
        return []
    return lines[1:] if start else lines


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file for reading.

    Raises:
        OSError: It is missing, or a link.
        ValueError: It is not a plain file.
    """
    # Systems without O_NOFOLLOW would follow links.
    if path.is_symlink():
        raise ValueError("is a link")
    file = os.fdopen(os.open(path, _OPEN_FLAGS), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError("is not a plain file")
    return file


def parse_json(data: bytes, *, allow_nan: bool = False) -> Any:
    """Parse UTF-8 JSON strictly: no key twice, no deep nesting, and no NaN unless it is allowed.

    Raises:
        ValueError: It is something else.
    """
    number = float if allow_nan else _finite
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_unique, parse_constant=number, parse_float=number
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    return value


class PlainLoader(_SAFE_LOADER):  # type: ignore[misc]
    """PyYAML's safe loader that refuses a key twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """Construct a mapping; raise `yaml.YAMLError` if it has a key twice."""
        mapping: dict[Hashable, Any] = super().construct_mapping(node, deep=deep)
        if len(mapping) != len(node.value):
            raise yaml.YAMLError("it has a key twice")
        return mapping


def parse_yaml(data: bytes, loader: type[PlainLoader] = PlainLoader) -> Any:
    """Parse YAML of plain data, without tags for objects, anchors or a key twice.

    Raises:
        ValueError: It is something else.
    """
    try:
        text = data.decode()
        _check_events(text)
        value = yaml.load(text, Loader=loader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except (TypeError, AttributeError, KeyError, OverflowError) as error:
        raise ValueError(f"it is not plain YAML ({error!r})") from None
    _check_depth(value)
    return value


def _check_events(text: str) -> None:
    """Refuse what a loader would follow without an end: aliases, and nesting, which is recursion.

    Raises:
        yaml.YAMLError: There is such a thing, or it is no YAML.
    """
    depth = 0
    for event in yaml.parse(text, Loader=PlainLoader):
        if isinstance(event, yaml.AliasEvent):
            raise yaml.YAMLError("it has YAML anchors, which are not allowed")
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_NESTING:
            raise yaml.YAMLError("it is nested too deeply")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("it has a key twice")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"it has {text}, which is not a finite number")
    return value


def _check_depth(value: Any) -> None:
    for depth, _ in enumerate(levels(value), start=1):
        if depth > DEEPEST_NESTING:
            raise ValueError("it is nested too deeply")


def levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of nested plain data, and the keys beside them, from the top down."""
    level = [value]
    while level:
        yield level
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple)):
                below += item
        level = below


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON mapping; return an empty one if it is missing or damaged."""
    try:
        # Python writes NaN, which a mean return can be.
        data = parse_json(read_plain_file(path, LARGEST_MANIFEST_BYTES), allow_nan=True)
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
