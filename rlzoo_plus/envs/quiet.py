"""Hides the output of compiled modules."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def native_output_hidden() -> Iterator[None]:
    """Hide what compiled modules print as they start: build times, arguments."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    sink = os.open(os.devnull, os.O_WRONLY)
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
