"""The cores of this machine, and the memory that a group of processes uses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SESSION, _RSS = 3, 21  # fields of /proc/<pid>/stat behind the name


def cores() -> int:
    """Return the number of cores that all jobs on this machine may keep busy."""
    # Imports Gymnasium, which a command that counts nothing does not need.
    from robots.cores import machine_cores

    return machine_cores()


def session_memory_bytes(leader: int) -> int:
    """Return the resident memory of a session's processes [bytes]; shared pages count in each."""
    total = 0
    if not sys.platform.startswith("linux"):
        command = ["ps", "-A", "-o", "pgid=,rss="]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        rows = [line.split() for line in done.stdout.splitlines()]
        return sum(1024 * int(row[1]) for row in rows if len(row) == 2 and row[0] == str(leader))
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # The name, in parentheses, may contain anything.
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[_SESSION]) == leader:
            total += int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE")
    return total
