"""Worlds of PyBullet without the memory that they only fill with zeros.

A world takes 29 MB when it is connected, and 20 of them hold nothing but zeros: room for meshes,
pictures and messages that few robots need. Pages of zeros that are given back to Linux are zeros
again when they are next read or written, so only the memory in use becomes less.
"""

import os
import re
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from threading import get_native_id
from typing import Any, NamedTuple

import pybullet

from robots.engines.bullet.plugin import get_plugin
from robots.engines.compiling import PluginError

_MAPS, _THREADS = Path("/proc/self/maps"), Path("/proc/self/task")
# Memory of this process alone, and of no file.
_OWN = re.compile(rb"^([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0 *(?:\[heap\])?$", re.MULTILINE)
_SWITCHES = re.compile(rb"ctxt_switches:\s*(\d+)")
_connect = pybullet.connect

Ranges = list[tuple[int, int]]


class _Look(NamedTuple):
    """What memory there was, and how often each other thread had been switched then."""

    process: int
    memory: Ranges
    switches: dict[str, list[bytes]]


_last: _Look | None = None


@wraps(_connect)
def connect(*args: Any, **kwargs: Any) -> int:
    """Connect as ``pybullet.connect`` does; a world without a window is kept small.

    That needs Linux and the plugin, and that no other thread runs meanwhile; else it is as large as
    PyBullet makes it.
    """
    mode = kwargs.get("method", args[0] if args else None)
    before = _look() if mode == pybullet.DIRECT else None
    client: int = _connect(*args, **kwargs)
    if before is not None and client >= 0:
        _shrink(before)
    return client


def keep_worlds_small() -> None:
    """Let every world of this process be connected by ``connect``, those of other packages too."""
    pybullet.connect = connect


def _shrink(before: _Look) -> None:
    """Give back what is zeros of the memory that is new."""
    global _last
    try:
        give_back = get_plugin().functions.give_back_zeros
        now = _Look(os.getpid(), _memory(), _switches())
    except (PluginError, OSError):
        return
    # No other thread can have a part of it if none has run.
    if now.switches == before.switches:
        for start, end in list(_new(now.memory, before.memory)):
            give_back(start, end)
    _last = now


def _look() -> _Look | None:
    """Look at the memory, unless no other thread has run since it was last looked at."""
    try:
        process, switches = os.getpid(), _switches()
        if _last is not None and (_last.process, _last.switches) == (process, switches):
            return _last
        return _Look(process, _memory(), switches)
    except OSError:  # no Linux, or a thread that has just ended
        return None


def _memory() -> Ranges:
    found = _OWN.findall(_MAPS.read_bytes())
    return [(int(start, 16), int(end, 16)) for start, end in found]


def _switches() -> dict[str, list[bytes]]:
    others = set(os.listdir(_THREADS)) - {str(get_native_id())}
    texts = {name: (_THREADS / name / "status").read_bytes() for name in others}
    found = {name: _SWITCHES.findall(text) for name, text in texts.items()}
    # One that runs all the time is never switched.
    if not all(found.values()) or any(b"State:\tR" in text for text in texts.values()):
        raise OSError("another thread runs, or the system does not count how often it does")
    return found


def _new(ranges: Ranges, known: Ranges) -> Iterator[tuple[int, int]]:
    """Yield the parts of ranges that are in none of the known ones; both are in order."""
    for start, end in ranges:
        for low, high in known:
            if low >= end:
                break
            if high > start:
                if low > start:
                    yield start, low
                start = high
        if start < end:
            yield start, end
