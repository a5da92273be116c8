"""Warnings about settings that are allowed but rarely wanted, and about the machine."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps, trains_by_episode
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.sweeps.launchers.launcher import GIB, workers
from rlzoo_plus.sweeps.launchers.usage import cores
from rlzoo_plus.sweeps.refusals import ON_THIS_MACHINE
from rlzoo_plus.sweeps.sweep_job import busy_cores

if TYPE_CHECKING:
    from rlzoo_plus.doctor.building import AgentFacts

# The library's own defaults (100 steps before the first batch of 256) are below.
_MOST_REPEATS = 4
_MOST_EVALUATION = 10
# A process that has imported torch and an environment; most of it is shared between jobs.
_PROCESS_BYTES = GIB // 4
_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def advice(config: RunConfig, facts: AgentFacts) -> list[str]:
    """Return what is doubtful about a run."""
    config = with_schedule(config, lambda: facts.episode_steps)
    checks = (_replay, _schedule, _episodes, _resources)
    return [text for check in checks for text in check(config, facts)]


def _replay(config: RunConfig, facts: AgentFacts) -> Iterator[str]:
    values, prefix = config.algo.hyperparams, "algo.hyperparams."
    batch, size = values.get("batch_size"), values.get("buffer_size")
    starts = values.get("learning_starts")
    if not isinstance(size, int):
        return
    most = min(size, config.n_timesteps)
    if isinstance(batch, int) and batch > most:
        what = f"buffer_size={size}" if size <= config.n_timesteps else "the whole run"
        yield (
            f"{prefix}batch_size={batch} is above {what}: a batch repeats transitions. Set it to "
            f"at most {most}."
        )
    elif isinstance(batch, int) and starts is not None and batch > _MOST_REPEATS * max(starts, 1):
        yield (
            f"{prefix}batch_size={batch} is {batch / max(starts, 1):,.0f} times learning_starts="
            f"{max(starts, 1)}: the first batches repeat transitions. Set it to at least {batch}."
        )
    if not isinstance(starts, int):
        return
    if starts > size:
        yield (
            f"{prefix}learning_starts={starts} is above buffer_size={size}: the first transitions "
            f"are gone before the first update. Set buffer_size to at least {starts}."
        )
    is_her = (config.algo.replay_buffer or get_algorithm(config.algo.name).replay_buffer) == "her"
    whole = (facts.episode_steps or 0) * config.n_envs if is_her else 0
    each = f"is below one episode of each environment ({whole} steps)"
    if size < whole:
        yield (
            f"{prefix}buffer_size={size} {each}: hindsight replay ends with an error unless "
            f"episodes end earlier. Set it to at least {whole}."
        )
    elif starts < whole:
        yield (
            f"{prefix}learning_starts={starts} {each}: hindsight replay waits for the end of the "
            f"first one. Set it to at least {whole}."
        )


def _schedule(config: RunConfig, _facts: AgentFacts) -> Iterator[str]:
    total, every, saving = config.n_timesteps, config.eval.every_steps, config.checkpoint
    if isinstance(every, int):
        patience, count = config.stop.no_improvement_evals, total // every
        if every > total:
            yield f"eval.every_steps={every}: the policy is evaluated at the end only."
        if patience is not None and patience >= count:
            yield (
                f"stop.no_improvement_evals={patience} is not below the {count} evaluations of the "
                "run: it can never end it."
            )
    for key in ("every_steps", "milestone_steps"):
        steps = getattr(saving, key)
        if steps is not None and steps > total:
            yield f"checkpoint.{key}={steps} is above n_timesteps={total}: none is written for it."
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    if saving.milestone_steps is not None and saving.milestone_steps < rollout:
        yield (
            f"checkpoint.milestone_steps={saving.milestone_steps} is below one rollout of "
            f"{rollout} steps: each writes one that is kept. Set it to at least {rollout}."
        )


def _episodes(config: RunConfig, facts: AgentFacts) -> Iterator[str]:
    longest, every = facts.episode_steps, config.eval.every_steps
    if longest is None:
        if trains_by_episode(config.algo):
            yield (
                f"{config.algo.name} collects whole episodes, and env.id={config.env.id} has no "
                "time limit: in an episode without an end nothing is ever learned or saved. Set "
                "env.time_limit, e.g. env.time_limit=1000."
            )
        return
    if config.n_timesteps < longest * config.n_envs:
        yield (
            f"n_timesteps={config.n_timesteps} is less than one episode of each environment "
            f"({longest} steps x n_envs {config.n_envs}), if none ends early."
        )
    played = int(config.eval.episodes) * longest
    if isinstance(every, int) and played > _MOST_EVALUATION * every:
        yield (
            f"an evaluation may play {played:,} steps, {played / every:,.0f} times as many as are "
            "trained between two. Set eval.every_steps higher, or eval.episodes lower."
        )


def _resources(config: RunConfig, facts: AgentFacts) -> Iterator[str]:
    if config.vec_env == "subproc" and config.n_envs == 1:
        yield "vec_env=subproc with n_envs=1 only costs time. Set vec_env=auto, or n_envs higher."
    threads, is_here = config.num_threads, config.infra.name in ON_THIS_MACHINE
    if is_here and isinstance(threads, int) and threads > cores():
        yield f"num_threads={threads} is above the {cores()} cores here. Set it to at most that."
    limit, needed = config.infra.memory_gib, facts.replay_bytes(config) / GIB
    if limit is not None and needed >= limit:
        yield (
            f"infra.memory_gib={limit:g} is below the {needed:.1f} GiB of the replay buffer: the "
            "job will be killed. Set algo.hyperparams.buffer_size lower, or the limit higher."
        )


def slots_for(configs: list[RunConfig]) -> int:
    """Return how many jobs of a sweep run at once on this machine."""
    return min(len(configs), workers(configs[0].infra, max(map(busy_cores, configs))))


def machine_advice(configs: list[RunConfig], slots: int, folder: Path) -> list[str]:
    """Compare the needs of all jobs with the free memory, disk and cores.

    `slots` of them run at once, and their directories will be in the folder.
    """
    from rlzoo_plus.doctor.building import agent_facts

    pairs = [(config, agent_facts(config)) for config in configs]
    texts = [*_memory(pairs, slots)]
    needed, free = sum(_disk_bytes(*pair) for pair in pairs), free_disk_bytes(folder)
    if needed > free:
        texts.append(
            f"disk: checkpoints may take {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free "
            f"in {folder}. Set checkpoint.keep lower, checkpoint.keep_best=false, or "
            "algo.hyperparams.buffer_size lower."
        )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    if load > cores():
        texts.append(
            f"this machine is busy: {load:.1f} processes want its {cores()} cores already. "
            "Training will be slower, and a probe measures too little."
        )
    return texts


def _memory(pairs: list[tuple[RunConfig, AgentFacts]], slots: int) -> Iterator[str]:
    sizes = [(f.replay_bytes(c) + f.rollout_bytes + _PROCESS_BYTES, c) for c, f in pairs]
    largest = sorted(sizes, key=lambda size: size[0], reverse=True)[:slots]
    needed, free = sum(size for size, _ in largest), available_memory_bytes()
    if free is None or needed <= free:
        return
    is_one = len(largest) == 1
    who = "the run grows" if is_one else f"{len(largest)} jobs at once grow"
    size = largest[0][1].algo.hyperparams.get("buffer_size")
    smaller = "" if size is None else f"algo.hyperparams.buffer_size lower than {size}, or "
    yield (
        f"memory: {who} to {needed / GIB:.1f} GiB, and {free / GIB:.1f} GiB are free. Set "
        f"{smaller}{'n_envs' if is_one else 'infra.workers'} lower."
    )


def _disk_bytes(config: RunConfig, facts: AgentFacts) -> int:
    """Return the largest size of the checkpoints of a run [bytes]."""
    config = with_schedule(config, lambda: facts.episode_steps)
    saving, every = config.checkpoint, config.eval.every_steps
    count = saving.keep + 1
    if saving.keep_best and isinstance(every, int):
        count += config.n_timesteps // every
    if saving.milestone_steps is not None:
        count += config.n_timesteps // saving.milestone_steps
    # Checkpoints share the rows of the buffer that are the same.
    return count * facts.weights_bytes + facts.replay_bytes(config)


def free_disk_bytes(folder: Path) -> int:
    """Return the free space where a folder is, or will be [bytes]."""
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free


def available_memory_bytes() -> int | None:
    """Return the memory that can be used without swapping [bytes], None if that is not known.

    The limit of a container counts too.
    """
    known = []
    with contextlib.suppress(OSError):
        lines = _MEMINFO.read_text().splitlines()
        known += [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    # The text "max" is no limit.
    with contextlib.suppress(OSError, ValueError):
        limit = int((_CGROUP / "memory.max").read_text())
        known.append(max(limit - int((_CGROUP / "memory.current").read_text()), 0))
    return min(known, default=None)
