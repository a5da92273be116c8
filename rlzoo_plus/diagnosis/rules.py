"""Rules of thumb: what a run is allowed to do, but hardly anybody means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE
from rlzoo_plus.infra.launcher import GIB
from rlzoo_plus.infra.usage import cores

if TYPE_CHECKING:
    from rlzoo_plus.diagnosis.building import AgentFacts

# The library's own defaults (100 steps before the first batch of 256) are below.
_MOST_REPEATS = 4
_MOST_EVALUATION = 10


def advice(config: RunConfig, facts: AgentFacts) -> list[str]:
    """Return what is doubtful about a run."""
    config = with_schedule(config, lambda: facts.episode_steps)
    checks = (_batches, _learning, _cadence, _stopping, _episodes, _processes, _memory_limit)
    return [text for check in checks for text in check(config, facts)]


def _batches(config: RunConfig, _facts: AgentFacts) -> list[str]:
    values = config.algo.hyperparams
    batch, size = values.get("batch_size"), values.get("buffer_size")
    if not isinstance(batch, int) or not isinstance(size, int):
        return []
    where = f"algo.hyperparams.batch_size={batch}"
    if batch > min(size, config.n_timesteps):
        what = f"buffer_size={size}" if size <= config.n_timesteps else "the whole run"
        return [
            f"{where} is above {what}: a batch repeats transitions. Set it to at most "
            f"{min(size, config.n_timesteps)}."
        ]
    starts = max(int(values.get("learning_starts", batch)), 1)
    if batch > _MOST_REPEATS * starts:
        return [
            f"{where} is {batch / starts:,.0f} times learning_starts={starts}: the first batches "
            f"repeat the same few transitions. Set learning_starts to at least {batch}."
        ]
    return []


def _learning(config: RunConfig, facts: AgentFacts) -> list[str]:
    values = config.algo.hyperparams
    starts, size = values.get("learning_starts"), values.get("buffer_size")
    if not isinstance(starts, int) or not isinstance(size, int):
        return []
    texts = []
    if starts > size:
        texts.append(
            f"algo.hyperparams.learning_starts={starts} is above buffer_size={size}: the first "
            f"transitions are gone before the first update. Set buffer_size to at least {starts}."
        )
    is_her = (config.algo.replay_buffer or get_algorithm(config.algo.name).replay_buffer) == "her"
    whole = (facts.episode_steps or 0) * config.n_envs
    if is_her and starts < whole:
        texts.append(
            f"algo.hyperparams.learning_starts={starts} is below one episode of each environment "
            f"({facts.episode_steps} steps x n_envs {config.n_envs}): hindsight replay ends with "
            f"an error if no episode is complete by then. Set it to at least {whole}."
        )
    return texts


def _cadence(config: RunConfig, _facts: AgentFacts) -> list[str]:
    total, texts = config.n_timesteps, []
    every = config.eval.every_steps
    if isinstance(every, int) and every > total:
        texts.append(
            f"eval.every_steps={every} is above n_timesteps={total}: the policy is evaluated at "
            "the end only."
        )
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    for key in ("every_steps", "milestone_steps"):
        steps = getattr(config.checkpoint, key)
        if steps is not None and steps > total:
            texts.append(
                f"checkpoint.{key}={steps} is above n_timesteps={total}: none is written for it."
            )
        if key == "milestone_steps" and steps is not None and steps < rollout:
            texts.append(
                f"checkpoint.{key}={steps} is below one rollout of {rollout} steps: each rollout "
                f"writes one that stays for ever. Set it to at least {rollout}."
            )
    return texts


def _stopping(config: RunConfig, _facts: AgentFacts) -> list[str]:
    patience, every = config.stop.no_improvement_evals, config.eval.every_steps
    if patience is None or not isinstance(every, int):
        return []
    count = config.n_timesteps // every
    if patience < count:
        return []
    return [
        f"stop.no_improvement_evals={patience} is not below the {count} evaluations of the run: "
        "it can never end it."
    ]


def _episodes(config: RunConfig, facts: AgentFacts) -> list[str]:
    longest, texts = facts.episode_steps, []
    if longest is None:
        return []
    if config.n_timesteps < longest * config.n_envs:
        texts.append(
            f"n_timesteps={config.n_timesteps} is less than one episode of each environment "
            f"({longest} steps x n_envs {config.n_envs}), if none ends early."
        )
    every = config.eval.every_steps
    played = int(config.eval.episodes) * longest
    if isinstance(every, int) and played > _MOST_EVALUATION * every:
        texts.append(
            f"an evaluation may play {played:,} steps (eval.episodes={config.eval.episodes} of "
            f"{longest}), {played / every:,.0f} times as many as are trained between two. Set "
            "eval.every_steps higher, or eval.episodes lower."
        )
    return texts


def _processes(config: RunConfig, _facts: AgentFacts) -> list[str]:
    texts = []
    if config.vec_env == "subproc" and config.n_envs == 1:
        texts.append(
            "vec_env=subproc with n_envs=1: one environment in a process of its own only costs "
            "time. Set vec_env=auto, or n_envs higher."
        )
    threads, is_here = config.num_threads, config.infra.name in ON_THIS_MACHINE
    if is_here and isinstance(threads, int) and threads > cores():
        texts.append(
            f"num_threads={threads} is above the {cores()} cores of this machine. Set it to at "
            f"most {cores()}."
        )
    return texts


def _memory_limit(config: RunConfig, facts: AgentFacts) -> list[str]:
    limit, needed = config.infra.memory_gib, facts.replay_bytes(config) / GIB
    if limit is None or needed < limit:
        return []
    return [
        f"infra.memory_gib={limit:g} is below what the replay buffer alone grows to "
        f"({needed:.1f} GiB): the job will be killed. Set algo.hyperparams.buffer_size lower, or "
        "the limit higher."
    ]
