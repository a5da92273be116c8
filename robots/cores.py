"""How many cores this process, and all jobs beside it, may keep busy."""

import os
from pathlib import Path

# What a numerical library may use, by convention; jobs of a sweep are started with 1.
OWN = "OMP_NUM_THREADS"
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def machine_cores() -> int:
    """Return how many cores this process and those that it starts may keep busy, at least 1.

    These are the cores that it may run on, no more than a container's quota.
    """
    if hasattr(os, "sched_getaffinity"):
        counts = [len(os.sched_getaffinity(0))]
    else:
        counts = [os.cpu_count() or 1]
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        counts.append(int(quota) // int(period))
    except (OSError, ValueError, ZeroDivisionError):
        pass  # No quota ("max"), or no such file.
    return max(1, min(counts))


def usable_cores() -> int:
    """Return how many cores this process may keep busy with threads of its own, at least 1.

    No more than ``OMP_NUM_THREADS``, which jobs that run side by side are given.
    """
    own = os.environ.get(OWN, "")
    return max(1, min(machine_cores(), int(own))) if own.isdecimal() else machine_cores()
