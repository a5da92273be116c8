"""How many cores this process may keep busy."""

import os
from pathlib import Path

# What a numerical library may use, by convention; jobs of a sweep are started with 1.
OWN = "OMP_NUM_THREADS"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores() -> int:
    """Return how many cores this process may keep busy with threads of its own, at least 1.

    These are the cores that it may run on, no more than a container's quota and no more than
    ``OMP_NUM_THREADS``, which jobs that run side by side are given.
    """
    if hasattr(os, "sched_getaffinity"):
        counts = [len(os.sched_getaffinity(0))]
    else:
        counts = [os.cpu_count() or 1]
    own = os.environ.get(OWN, "")
    if own.isdecimal():
        counts.append(int(own))
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        counts.append(int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # No quota ("max"), or no such file.
    return max(1, min(counts))
