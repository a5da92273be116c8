"""Whether freed memory goes back to the system."""

import os
import platform
from pathlib import Path

import pytest

from rlzoo_plus.fast.heap import return_free_memory

MIB = 2**20


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs GNU's C library")
def test_freed_memory_below_what_is_still_used_goes_back():
    # Too small for a mapping of their own, and the last one keeps the heap's end where it is.
    blocks = [b"x" * 100_000 for _ in range(1000)]
    last = blocks[-1]
    blocks.clear()
    before = resident_bytes()
    return_free_memory()
    assert before - resident_bytes() > 50 * MIB
    assert last
