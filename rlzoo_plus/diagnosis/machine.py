"""What the machine must have for all the jobs of a command: memory, disk, and time to spare."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.findings import Finding, warning
from rlzoo_plus.infra.launcher import GIB, workers
from rlzoo_plus.infra.usage import cores
from rlzoo_plus.sweeps.job import busy_cores

if TYPE_CHECKING:
    from rlzoo_plus.diagnosis.building import AgentFacts

# A process that has imported torch and an environment; most of it is shared between jobs.
_PROCESS_BYTES = GIB // 4
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def check_machine(configs: list[RunConfig], slots: int, folder: Path) -> list[Finding]:
    """Compare what jobs need together with what is free.

    Args:
        configs: The jobs, all of which can be built.
        slots: How many run at once.
        folder: Where their directories will be.
    """
    from rlzoo_plus.diagnosis.building import agent_facts

    facts = [agent_facts(config) for config in configs]
    pairs = list(zip(configs, facts, strict=True))
    return [*_check_memory(pairs, slots), *_check_disk(pairs, folder), *_check_load()]


def slots_for(configs: list[RunConfig]) -> int:
    """Return how many jobs of a sweep run at once on this machine."""
    return min(len(configs), workers(configs[0].infra, max(map(busy_cores, configs))))


def available_memory_bytes() -> int | None:
    """Return the memory that can be used without swapping [bytes], None if that is not known."""
    found = [_free_of_system(), _free_of_container()]
    known = [value for value in found if value is not None]
    return min(known, default=None)


def free_disk_bytes(folder: Path) -> int:
    """Return what is free where a folder is, or will be [bytes]."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def _check_memory(pairs: list[tuple[RunConfig, AgentFacts]], slots: int) -> list[Finding]:
    free = available_memory_bytes()
    if free is None:
        return []
    sizes = [(f.replay_bytes(c) + f.rollout_bytes + _PROCESS_BYTES, c) for c, f in pairs]
    largest = sorted(sizes, key=lambda size: size[0], reverse=True)[:slots]
    needed = sum(size for size, _ in largest)
    if needed <= free:
        return []
    first = largest[0][1]
    at_once = f"{len(largest)} jobs at once grow" if len(largest) > 1 else "the run grows"
    size = first.algo.hyperparams.get("buffer_size")
    smaller = "" if size is None else f"algo.hyperparams.buffer_size lower than {size}, or "
    fewer = "infra.workers lower" if len(largest) > 1 else "n_envs lower"
    return [
        warning(
            f"memory: {at_once} to {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free. Set "
            f"{smaller}{fewer}."
        )
    ]


def _check_disk(pairs: list[tuple[RunConfig, AgentFacts]], folder: Path) -> list[Finding]:
    needed = sum(_disk_bytes(config, facts) for config, facts in pairs)
    free = free_disk_bytes(folder)
    if needed <= free:
        return []
    return [
        warning(
            f"disk: checkpoints may take {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free "
            f"in {folder}. Set checkpoint.keep lower, checkpoint.keep_best=false, or "
            "algo.hyperparams.buffer_size lower."
        )
    ]


def _disk_bytes(config: RunConfig, facts: AgentFacts) -> int:
    """Return what the checkpoints of a run take at most [bytes]."""
    config = with_schedule(config, lambda: facts.episode_steps)
    saving, every = config.checkpoint, config.eval.every_steps
    count = saving.keep + 1
    if saving.keep_best and isinstance(every, int):
        count += config.n_timesteps // every
    if saving.milestone_steps is not None:
        count += config.n_timesteps // saving.milestone_steps
    # Checkpoints share the rows of the buffer that are the same.
    return count * facts.weights_bytes + facts.replay_bytes(config)


def _check_load() -> list[Finding]:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load <= cores():
        return []
    return [
        warning(
            f"this machine is busy: {load:.1f} processes want its {cores()} cores already. "
            "Training will be slower, and a probe measures too little."
        )
    ]


def _free_of_system() -> int | None:
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _free_of_container() -> int | None:
    """Return what the limit of a container leaves, None without such a limit."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = int((_CGROUP / "memory.current").read_text())
    except (OSError, ValueError):
        return None
    return None if limit == "max" else max(int(limit) - used, 0)
