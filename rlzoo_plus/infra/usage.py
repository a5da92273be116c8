"""What this machine has, and what a group of processes uses of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SESSION, _RSS = 3, 21  # fields of /proc/<pid>/stat behind the name


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def session_memory_bytes(leader: int) -> int:
    """Return the resident memory of a session's processes [bytes]; shared pages count in each.

    Args:
        leader: Process id of the process that began the session.
    """
    if sys.platform.startswith("linux"):
        return _from_proc(leader)
    return _from_ps(leader)


def _from_proc(leader: int) -> int:
    page, total = os.sysconf("SC_PAGE_SIZE"), 0
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            # The name, in parentheses, may hold anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[_SESSION]) == leader:
            total += int(fields[_RSS]) * page
    return total


def _from_ps(leader: int) -> int:
    command = ["ps", "-A", "-o", "pgid=,rss="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.split() for line in done.stdout.splitlines()]
    return sum(1024 * int(row[1]) for row in rows if len(row) == 2 and row[0] == str(leader))
