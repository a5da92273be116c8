"""Gives memory that this process has freed back to the system."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def return_free_memory() -> None:
    """Give freed memory back, which GNU's C library keeps for later; nothing elsewhere.

    It takes some milliseconds. Where much was freed and other sizes are needed next, the process
    would otherwise grow by both.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
