"""Silence for compiled modules that print what nobody asked for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def native_output_hidden(into: int | None = None) -> Iterator[None]:
    """Hide what compiled modules print, or write it to the file descriptor `into`."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    sink = os.open(os.devnull, os.O_WRONLY) if into is None else os.dup(into)
    try:
        for descriptor in saved:
            os.dup2(sink, descriptor)
        yield
    finally:
        # The text may still be in the buffer of the C library.
        ctypes.CDLL(None).fflush(None)
        for descriptor, copy in saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(sink)
