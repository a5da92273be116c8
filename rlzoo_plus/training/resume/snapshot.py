"""A run's whole state at the top of an iteration: captured for a checkpoint, and restored."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import AfterValidator, StrictInt
from pydantic.dataclasses import dataclass as checked_dataclass
from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.artifacts.checkpoint import Checkpoint, CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkIndex, ChunkStore, PendingChunks
from rlzoo_plus.artifacts.provenance import code_state
from rlzoo_plus.artifacts.result import EXTENDED, NO_DIFFERENCE
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.compare import changed_values, describe_changes, outcome_values
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.engine import engine_package
from rlzoo_plus.envs.normalization import ObservationNormalizer
from rlzoo_plus.envs.spaces import encode_space
from rlzoo_plus.given import names_in
from rlzoo_plus.training.resume import agent_state, env_state, replay_rows
from rlzoo_plus.training.resume.callback_state import (
    capture_callbacks,
    restore_callbacks,
    unsaved,
)
from rlzoo_plus.training.resume.fingerprint import RunCode, differences, numeric_fingerprint
from rlzoo_plus.training.resume.log_rows import CutRows, log_sizes

if TYPE_CHECKING:
    from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback

log = logging.getLogger(__name__)
# Position in the replay buffer, environment steps, and starts of long episodes.
_Place = tuple[int, int, dict[str, int]]


@checked_dataclass
class Exactness:
    """A run's resumes, and whether they were exact; checked, as a checkpoint is untrusted."""

    resumed_at: list[StrictInt] = field(default_factory=list)  # environment steps
    inexact_since: StrictInt | None = None  # the step after which the run may differ
    because: list[Annotated[str, AfterValidator(printable)]] = field(default_factory=list)

    def note_resume(self, step: int, reasons: list[str]) -> None:
        """Record that the run was resumed at a step, and what was not the same."""
        self.resumed_at.append(step)
        if reasons and self.inexact_since is None:
            self.inexact_since = step
        self.because += [reason for reason in reasons if reason not in self.because]


@dataclass(frozen=True)
class Snapshot:
    """The state of a run, ready to be written; it shares no memory with the run."""

    step: int  # environment steps taken
    state: dict[str, Any]  # nested plain data with arrays
    about: dict[str, Any]  # further entries of the checkpoint's manifest
    chunks: Mapping[str, PendingChunks]  # rows of large arrays that the disk lacks


class RunSnapshot:
    """Takes and restores snapshots of one run."""

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        store: CheckpointStore,
        evaluation: EvaluationCallback | None = None,
    ) -> None:
        self.config, self.run_dir, self.store = config, run_dir, store
        self.evaluation = evaluation  # it keeps the best policy
        self.exactness = Exactness()
        self.callbacks: list[BaseCallback] = []  # all of the run, in their order
        self.written: Mapping[str, ChunkIndex] = {}  # chunks of the newest written checkpoint
        self.stage: int | None = None  # of the curriculum
        self.begins_stage = False  # whether the next snapshot is the first of its stage
        self.cut_rows: CutRows | None = None  # rows from before the last stop, to be logged again
        self._parts: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._written_at: _Place = (0, 0, {})
        self._pending_at = self._written_at
        self._started = time.monotonic()
        self._fingerprint: dict[str, str] = {}
        self.code = RunCode(config)  # the user's, which the run executes

    @property
    def training_time_s(self) -> float:
        """Seconds of training, of all processes of the run together."""
        return time.monotonic() - self._started

    def begin(self, agent: Any) -> None:
        """Note the agent's parts; called once, before its first iteration."""
        self._parts = agent_state.parts_of(agent)
        self._settings = env_state.normalize_settings(agent.env)

    def verdict(self, agent: Any) -> bool | str:
        """Return whether the run is the one that it would have been without interruptions.

        That is certain for our own environments with a state, on the CPU, without user code;
        otherwise all that is known is that no difference was found.
        """
        if self.exactness.inexact_since is not None:
            return False
        has_given = any(names_in(self.config.model_dump()))
        if not self.exactness.resumed_at:
            return NO_DIFFERENCE if has_given else True
        is_ours = not own_code(self.config) and not has_given and agent.device.type == "cpu"
        return (is_ours and all(agent.env.get_attr("has_state"))) or NO_DIFFERENCE

    def take(self, agent: Any, ended: str | None = None) -> Snapshot:
        """Copy everything that decides how the run continues.

        Args:
            agent: At the top of an iteration, or after the last.
            ended: Why training is over, None if it is not.

        Raises:
            OSError: The log files cannot be made durable.
        """
        self._compare_rows(is_over=ended is not None)
        replaced = agent_state.replaced_parts(agent, self._parts)
        state = {
            **state_of(agent, replaced),
            "callbacks": capture_callbacks(self.callbacks),
            "exactness": asdict(self.exactness),
            "clock": {"training_s": self.training_time_s},
        }
        if self.begins_stage:
            state["envs"] = env_state.without_episodes(state["envs"])
        if (ranks := getattr(agent, "ranks", None)) is not None:
            state["ranks"] = ranks.states()
        chunks = self._new_chunks(agent, env_state.take_past(state["envs"]))
        _flush(agent, self.callbacks)
        about = {
            "config_hash": config_hash(self.config),
            "config": outcome_values(self.config),
            "n_timesteps": self.config.n_timesteps,
            "fingerprint": self._fingerprint_of(agent),
            "code": self.code.look(agent.env),
            "provenance": {**code_state(Path(__file__)), "time": time.time()},
            "logs": log_sizes(self.run_dir),
            "unsaved": self._unsaved(agent, replaced),
            "ended": ended,
            **({} if self.stage is None else {"stage": self.stage}),
        }
        return Snapshot(agent.num_timesteps, state, about, chunks)

    def with_evaluation(self, snapshot: Snapshot, agent: Any) -> Snapshot:
        """Return a snapshot with what was not known when it was taken: its evaluation's outcome.

        The run has gone on since then, but logged nothing except episodes.

        Raises:
            OSError: The log files cannot be made durable.
        """
        assert self.evaluation is not None
        self._compare_rows()
        _flush(agent)
        states, before = dict(snapshot.state["callbacks"]), snapshot.about["logs"]
        ((path, now),) = capture_callbacks([self.evaluation]).items()
        path = path.replace("0", str(self.callbacks.index(self.evaluation)), 1)
        states[path] = {**now, "n_calls": states[path]["n_calls"]}
        # Their rows go on while the evaluation is played.
        by_step = (f"{self.run_dir.monitor.name}/", self.run_dir.actions_file.name)
        logs = {
            name: before.get(name, 0) if name.startswith(by_step) else size
            for name, size in log_sizes(self.run_dir).items()
        }
        state = {**snapshot.state, "callbacks": states, "exactness": asdict(self.exactness)}
        return replace(snapshot, state=state, about={**snapshot.about, "logs": logs})

    def has_written(self, chunks: Mapping[str, ChunkIndex]) -> None:
        """Note the chunks on the disk; the next snapshot copies only newer rows."""
        self.written = chunks
        self._written_at = self._pending_at

    def restore(
        self,
        agent: Any,
        checkpoint: Checkpoint,
        problems: Sequence[str] = (),
        *,
        goes_on: bool = False,
    ) -> None:
        """Restore a freshly built run from a checkpoint, as exactly as possible.

        Args:
            agent: Built from the present configuration.
            checkpoint: Of this run.
            problems: What is known already not to be the same.
            goes_on: The process that has written it goes on in another stage: no resume.

        Raises:
            Exception: The checkpoint is of another run, or forged; its parts can raise anything.
        """
        state, about = checkpoint.state, checkpoint.about
        changes = changed_values(about, self.config)
        restored = restore_all(agent, checkpoint, changes, self.config, self.callbacks)
        effects, self._pending_at = restored
        if (ranks := getattr(agent, "ranks", None)) is not None:
            effects += ranks.restore(state.get("ranks"))
        # A branch begins at another run's checkpoint; what it was begun to change is no reason.
        if isinstance(begun := about.get("branch"), Mapping):
            meant, changes = changes, changed_values({"config": begun}, self.config)
            effects = [] if any(key.startswith("env.") for key in meant) else effects
        if agent.num_timesteps != checkpoint.step:
            raise ValueError(f"its agent has taken {agent.num_timesteps} steps")
        self.has_written(checkpoint.chunks)
        self.exactness = Exactness(**state.get("exactness", {}))
        reasons = list(problems)
        length = about.get("n_timesteps", self.config.n_timesteps)
        extended = f"{EXTENDED}{length:,} to {self.config.n_timesteps:,} steps"
        reasons += [extended] if length != self.config.n_timesteps else []
        reasons += describe_changes(changes)
        reasons += self.code.changes_since(about.get("code", {}), agent.env)
        # The summary shows the first reason: a change comes before its effects.
        reasons += effects
        reasons += differences(about.get("fingerprint", {}), self._fingerprint_of(agent))
        reasons += [printable(reason) for reason in about.get("unsaved", [])]
        if self.evaluation is not None:
            reasons += self.evaluation.missing_best()
        if reasons or not goes_on:
            self.exactness.note_resume(checkpoint.step, reasons)
        self._compare_rows()
        # The lost steps may not come again, and with them the best policy.
        if self.evaluation is not None and reasons:
            self.evaluation.keep_saved_best()
        self._started = time.monotonic() - state.get("clock", {}).get("training_s", 0.0)
        for reason in reasons:
            if reason == extended:
                log.info("the run is %s", extended)
            else:
                log.warning("not exactly as if never stopped: %s", reason)

    def _compare_rows(self, *, is_over: bool = False) -> None:
        """Compare the rows logged again with those from before the last stop."""
        reason = None if self.cut_rows is None else self.cut_rows.compare(is_over=is_over)
        if self.cut_rows is None or reason is None or self.exactness.inexact_since is not None:
            return
        self.exactness.inexact_since = self.cut_rows.since
        self.exactness.because.append(reason)
        log.warning("not exactly as if never stopped: %s", reason)

    def _new_chunks(
        self, agent: Any, past: Mapping[str, tuple[int, dict[str, Any]]]
    ) -> dict[str, PendingChunks]:
        """Copy the rows of running episodes and of the replay buffer that the disk lacks."""
        position, steps, starts = self._written_at
        episodes = ChunkStore(self.store.chunk_store().root, env_state.BLOCK, self.store.cipher)
        pending = {}
        for name, (start, columns) in past.items():
            before = self.written.get(name) if starts.get(name) == start else None
            pending[name] = episodes.snapshot(columns, len(columns["rewards"]), (), before)
        buffer = getattr(agent, "replay_buffer", None)
        now = 0 if buffer is None else int(buffer.pos)
        starts = {name: start for name, (start, _) in past.items()}
        self._pending_at = (now, int(agent.num_timesteps), starts)
        if buffer is None:
            return pending
        n_added = (agent.num_timesteps - steps) // agent.n_envs
        changed = replay_rows.changed_rows(buffer, position, n_added)
        store = self.store.chunk_store()
        for name, group in replay_rows.row_groups(buffer).items():
            rows, before = changed if group.append_only else None, self.written.get(name)
            pending[name] = store.snapshot(group.columns, group.used, rows, before)
        return pending

    def _fingerprint_of(self, agent: Any) -> dict[str, str]:
        if not self._fingerprint:
            packages = list(getattr(agent, "numeric_packages", ()))
            packages += [engine] if (engine := engine_package(self.config.env)) else []
            self._fingerprint = numeric_fingerprint(str(agent.device), packages)
        return self._fingerprint

    def _unsaved(self, agent: Any, replaced: Sequence[str]) -> list[str]:
        """Return what the checkpoint misses, a text for each."""
        missed = [*unsaved(self.callbacks), *env_state.unrecorded_calls(agent.env)]
        lost = [f"model.{name} was replaced" for name in replaced]
        lost += [
            f"VecNormalize.{name} was changed"
            for name, value in env_state.normalize_settings(agent.env).items()
            if self._settings.get(name, value) != value
        ]
        missed += [f"{what}, which a checkpoint does not hold" for what in lost]
        return missed + replay_rows.unsaved_parts(getattr(agent, "replay_buffer", None))


def state_of(agent: Any, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the state of an agent and its environments, without the rows of its replay buffer."""
    normalizer = ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())
    buffer = getattr(agent, "replay_buffer", None)
    return {
        "agent": agent_state.capture(agent, without),
        "envs": env_state.capture_envs(agent.env),
        "buffer": None if buffer is None else replay_rows.buffer_state(buffer),
        "normalizer": None if normalizer is None else normalizer.state(),
        "spaces": {
            "observation": encode_space(agent.observation_space),
            "action": encode_space(agent.action_space),
        },
    }


def restore_all(
    agent: Any,
    checkpoint: Checkpoint,
    changes: Mapping[str, Any],
    config: RunConfig,
    callbacks: Sequence[BaseCallback] = (),
) -> tuple[list[str], _Place]:
    """Restore every part of a freshly built run.

    Returns:
        What could not be restored exactly, and where the rows of the checkpoint end.

    Raises:
        Exception: The checkpoint is of another run, or forged; its parts can raise anything.
    """
    state, prefix = checkpoint.state, "algo.hyperparams."
    if checkpoint.schema < 2:
        agent_state.restore_parameters(agent, state["agent"])
        agent_state.restore_attributes(agent, state["agent"]["counters"])
        problems = ["the checkpoint is of schema 1, without environments and replay buffer"]
        return problems, (0, 0, {})
    # The algorithm's arguments, whatever changed below them.
    changed = [k.removeprefix(prefix).split(".")[0] for k in changes if k.startswith(prefix)]
    changed += [k.split(".")[1] for k in changes if k.startswith("algo.action_noise")]
    agent_state.restore(agent, state["agent"], changed)
    buffer = getattr(agent, "replay_buffer", None)
    position = 0
    if buffer is not None and state["buffer"] is not None:
        for name, group in replay_rows.row_groups(buffer).items():
            checkpoint.read_rows(name, group.columns)
        replay_rows.restore_buffer_state(buffer, state["buffer"], changed)
        position = int(buffer.pos)
    starts = env_state.put_past_back(state["envs"], checkpoint.chunks, checkpoint.read_rows)
    restore_callbacks(callbacks, state.get("callbacks", {}))
    may_call = bool(own_code(config))
    problems = env_state.restore_envs(agent.env, state["envs"], may_call=may_call)
    if problems:
        start_new_episodes(agent)
        problems = [one for one in problems if one != env_state.BEGINS_STAGE]
    else:
        problems = env_state.forgotten(agent.env, state["envs"])
    # Last: restoring the environments may have drawn from the global generators.
    agent_state.restore_random(agent, state["agent"]["random"])
    return problems, (position, int(agent.num_timesteps), starts)


def _flush(agent: Any, callbacks: Sequence[Any] = ()) -> None:
    """Write what the outputs of the log, and the action log, keep in memory."""
    for output in agent.logger.output_formats:
        if hasattr(output, "flush"):
            output.flush()
    for callback in callbacks:
        if hasattr(callback, "flush_rows"):
            callback.flush_rows()


def start_new_episodes(agent: Any) -> None:
    """Abandon the running episodes where they cannot be restored."""
    agent._last_obs = agent.env.reset()
    agent._last_episode_starts = np.ones((agent.n_envs,), dtype=bool)
    normalize = agent.get_vec_normalize_env()
    if normalize is not None:
        agent._last_original_obs = normalize.get_original_obs()
    buffer = getattr(agent, "replay_buffer", None)
    if buffer is not None:
        replay_rows.end_running_episodes(buffer)
