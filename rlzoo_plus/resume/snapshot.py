"""All of a run at the top of an iteration: taken for a checkpoint, and put back from one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.artifacts.checkpoint import Checkpoint, CheckpointStore
from rlzoo_plus.artifacts.chunks import ChunkIndex, ChunkStore, PendingChunks
from rlzoo_plus.artifacts.provenance import code_state
from rlzoo_plus.artifacts.result import NO_DIFFERENCE
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.compare import changed_values, describe_changes, outcome_values
from rlzoo_plus.config.own_code import own_code
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.spaces import encode_space
from rlzoo_plus.resume import replay_rows
from rlzoo_plus.resume.agent_state import (
    capture,
    parts_of,
    replaced_parts,
    restore,
    restore_attributes,
    restore_parameters,
    restore_random,
)
from rlzoo_plus.resume.callback_state import (
    KeepsBest,
    capture_callbacks,
    restore_callbacks,
    unsaved,
)
from rlzoo_plus.resume.env_state import (
    BLOCK,
    Past,
    capture_envs,
    forgotten,
    normalize_settings,
    put_past_back,
    restore_envs,
    take_past,
    unrecorded_calls,
)
from rlzoo_plus.resume.fingerprint import differences, numeric_fingerprint
from rlzoo_plus.resume.log_rows import CutRows, log_sizes
from rlzoo_plus.resume.user_code import RunCode

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)


def has_user_code(config: RunConfig) -> bool:
    """Tell whether code that is not ours takes part in a training."""
    return bool(own_code(config))


@dataclass
class Exactness:
    """The account of a run's interruptions.

    Attributes:
        resumed_at: Environment steps at which the run went on.
        inexact_since: The first step after which it may differ; None if it is exact.
        because: Why it may.
    """

    resumed_at: list[int] = field(default_factory=list)
    inexact_since: int | None = None
    because: list[str] = field(default_factory=list)

    def note_resume(self, step: int, reasons: list[str]) -> None:
        """Record that the run went on at a step, with what was not the same there."""
        self.resumed_at.append(step)
        if reasons:
            if self.inexact_since is None:
                self.inexact_since = step
            self.because += [reason for reason in reasons if reason not in self.because]

    def note_difference(self, since: int, reason: str) -> bool:
        """Record a row that came out otherwise than before a stop; tell whether that is news."""
        if self.inexact_since is not None:
            return False
        self.inexact_since = since
        self.because.append(reason)
        return True

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Exactness:
        """Read what `state` returned, which may come from anywhere.

        Raises:
            ValueError: It is something else.
        """
        account = cls(**state)
        steps = [*account.resumed_at, account.inexact_since or 0]
        if not all(type(step) is int for step in steps) or not isinstance(account.because, list):
            raise ValueError("the account of its interruptions is none")
        because = [printable(reason) for reason in account.because]
        return cls(list(account.resumed_at), account.inexact_since, because)

    def state(self) -> dict[str, Any]:
        """Return the account as plain data."""
        return {
            "resumed_at": list(self.resumed_at),
            "inexact_since": self.inexact_since,
            "because": list(self.because),
        }


@dataclass(frozen=True)
class Snapshot:
    """A moment of a run, ready to be written; it shares no memory with the run.

    Attributes:
        step: Environment steps taken.
        state: Nested plain data with arrays.
        about: What the checkpoint's manifest says besides.
        chunks: Rows of the replay buffer that the disk does not have yet.
    """

    step: int
    state: dict[str, Any]
    about: dict[str, Any]
    chunks: Mapping[str, PendingChunks]


class RunSnapshot:
    """Takes and restores snapshots of one run.

    Attributes:
        exactness: The account of the run's interruptions.
        callbacks: All callbacks of the run, in their order.
        code: Which code of the user's the run executes.
        written: What the newest written checkpoint holds of the replay buffer.
        cut_rows: The log rows that came before the last stop and are to come again.
    """

    def __init__(self, config: RunConfig, run_dir: RunDir, store: CheckpointStore) -> None:
        self.config = config
        self.run_dir = run_dir
        self.store = store
        self.exactness = Exactness()
        self.callbacks: list[BaseCallback] = []
        self.written: Mapping[str, ChunkIndex] = {}
        self.cut_rows: CutRows | None = None
        self._parts: dict[str, Any] = {}
        self._settings: dict[str, Any] = {}
        self._written_at = (0, 0)
        self._pending_at = (0, 0)
        self._written_starts: dict[str, int] = {}
        self._pending_starts: dict[str, int] = {}
        self._started = time.monotonic()
        self._fingerprint: dict[str, str] = {}
        self.code = RunCode(config)

    @property
    def training_time_s(self) -> float:
        """Seconds of training, of all processes together."""
        return time.monotonic() - self._started

    def begin(self, agent: BaseAlgorithm) -> None:
        """Note what the agent is built of; called once, before its first iteration."""
        self._parts = parts_of(agent)
        self._settings = normalize_settings(agent.env)

    def verdict(self, agent: BaseAlgorithm) -> bool | str:
        """Tell whether the run is the one that would have been without interruptions.

        It is certain for an environment of ours that gives its state, on the CPU, without code of
        a user's; elsewhere all that is known is that no difference was found.
        """
        if self.exactness.inexact_since is not None:
            return False
        is_ours = not has_user_code(self.config) and agent.device.type == "cpu"
        is_certain = not self.exactness.resumed_at or (
            is_ours and all(agent.env.get_attr("has_state"))
        )
        return is_certain or NO_DIFFERENCE

    def take(self, agent: BaseAlgorithm, ended: str | None = None) -> Snapshot:
        """Copy everything that decides how the run goes on.

        Args:
            agent: At the top of an iteration, or after the last.
            ended: Why training is over, None if it is not.

        Raises:
            OSError: The log files cannot be made durable.
        """
        self._compare_rows(is_over=ended is not None)
        normalizer = ObservationNormalizer.from_vec_normalize(agent.get_vec_normalize_env())
        buffer = getattr(agent, "replay_buffer", None)
        envs = capture_envs(agent.env)
        past = take_past(envs)
        state = {
            "agent": capture(agent, self._replaced(agent)),
            "envs": envs,
            "buffer": None if buffer is None else replay_rows.buffer_state(buffer),
            "callbacks": capture_callbacks(self.callbacks),
            "exactness": self.exactness.state(),
            "clock": {"training_s": self.training_time_s},
            "normalizer": None if normalizer is None else normalizer.state(),
            "spaces": {
                "observation": encode_space(agent.observation_space),
                "action": encode_space(agent.action_space),
            },
        }
        chunks = self._new_steps(past)
        if buffer is not None:
            chunks |= self._new_rows(agent, buffer)
        about = {**self._about(agent), "ended": ended}
        return Snapshot(agent.num_timesteps, state, about, chunks)

    def has_written(self, chunks: Mapping[str, ChunkIndex]) -> None:
        """Note what the disk has now; the next snapshot copies only what came after."""
        self.written = chunks
        self._written_at = self._pending_at
        self._written_starts = self._pending_starts

    def restore(
        self, agent: BaseAlgorithm, checkpoint: Checkpoint, problems: Sequence[str] = ()
    ) -> None:
        """Bring a freshly built run to the moment of a checkpoint, as exactly as possible.

        Args:
            agent: Built from the configuration of now.
            checkpoint: Of this run.
            problems: What is known already not to be as it was.

        Raises:
            Exception: The checkpoint is of another run, or forged; whatever its parts make of it.
        """
        state = checkpoint.state
        if checkpoint.schema < 2:
            effects = self._restore_policy_only(agent, checkpoint)
        else:
            effects = self._restore_all(agent, checkpoint)
        if agent.num_timesteps != checkpoint.step:
            raise ValueError(f"its agent has taken {agent.num_timesteps} steps")
        self.exactness = Exactness.from_state(state.get("exactness", {}))
        reasons = list(problems)
        now = self._fingerprint_of(agent)
        length = checkpoint.about.get("n_timesteps", self.config.n_timesteps)
        if length != self.config.n_timesteps:
            reasons.append(f"n_timesteps was {length}, is {self.config.n_timesteps}")
        reasons += describe_changes(changed_values(checkpoint.about, self.config))
        reasons += self.code.changes_since(checkpoint.about.get("code", {}), agent.env)
        # The summary shows the first: a change before what comes of it.
        reasons += effects
        reasons += differences(checkpoint.about.get("fingerprint", {}), now)
        reasons += [printable(reason) for reason in checkpoint.about.get("unsaved", [])]
        for callback in self.callbacks:
            if isinstance(callback, KeepsBest):
                reasons += callback.missing_best()
        self.exactness.note_resume(checkpoint.step, reasons)
        self._compare_rows()
        if reasons:
            self._keep_better_policies()
        self._started = time.monotonic() - state.get("clock", {}).get("training_s", 0.0)
        for reason in reasons:
            log.warning("not exactly as if never stopped: %s", reason)

    def _replaced(self, agent: BaseAlgorithm) -> list[str]:
        return replaced_parts(agent, self._parts)

    def _compare_rows(self, *, is_over: bool = False) -> None:
        """Compare the rows that were made again with those before the last stop."""
        if self.cut_rows is None:
            return
        reason = self.cut_rows.compare(is_over=is_over)
        if reason is not None and self.exactness.note_difference(self.cut_rows.since, reason):
            log.warning("not exactly as if never stopped: %s", reason)

    def _restore_all(self, agent: BaseAlgorithm, checkpoint: Checkpoint) -> list[str]:
        state = checkpoint.state
        changed = _changed_hyperparams(changed_values(checkpoint.about, self.config))
        restore(agent, state["agent"], changed)
        buffer = getattr(agent, "replay_buffer", None)
        if buffer is not None and state["buffer"] is not None:
            for name, group in replay_rows.row_groups(buffer).items():
                checkpoint.read_rows(name, group.columns)
            replay_rows.restore_buffer_state(buffer, state["buffer"], changed)
            self._pending_at = self._moment(agent, buffer)
        self._pending_starts = put_past_back(state["envs"], checkpoint.chunks, checkpoint.read_rows)
        self.has_written(checkpoint.chunks)
        restore_callbacks(self.callbacks, state["callbacks"])
        may_call = has_user_code(self.config)
        problems = restore_envs(agent.env, state["envs"], may_call=may_call)
        if problems:
            _start_new_episodes(agent)
        else:
            problems = forgotten(agent.env, state["envs"])
        # Last: bringing the environments back may have drawn from the global generators.
        restore_random(agent, state["agent"]["random"])
        return problems

    def _restore_policy_only(self, agent: BaseAlgorithm, checkpoint: Checkpoint) -> list[str]:
        state = checkpoint.state["agent"]
        restore_parameters(agent, state)
        restore_attributes(agent, state["counters"])
        return ["the checkpoint is of schema 1, without environments and replay buffer"]

    def _keep_better_policies(self) -> None:
        """Keep a best policy of the steps that are lost, which may not come again."""
        for callback in self.callbacks:
            if isinstance(callback, KeepsBest):
                callback.keep_saved_best()

    def _new_steps(self, past: Mapping[str, Past]) -> dict[str, PendingChunks]:
        """Copy the blocks of running episodes that the disk does not have."""
        chunks = ChunkStore(self.store.chunk_store().root, BLOCK)
        self._pending_starts = {name: episode.start for name, episode in past.items()}
        pending = {}
        for name, episode in past.items():
            is_same = self._written_starts.get(name) == episode.start
            before = self.written.get(name) if is_same else None
            pending[name] = chunks.snapshot(episode.columns, episode.n_steps, (), before)
        return pending

    def _new_rows(self, agent: BaseAlgorithm, buffer: Any) -> dict[str, PendingChunks]:
        moment = self._moment(agent, buffer)
        position, steps = self._written_at
        n_added = (agent.num_timesteps - steps) // agent.n_envs
        changed = replay_rows.changed_rows(buffer, position, n_added)
        self._pending_at = moment
        return {
            name: self.store.chunk_store().snapshot(
                group.columns,
                group.used,
                changed if group.append_only else None,
                self.written.get(name),
            )
            for name, group in replay_rows.row_groups(buffer).items()
        }

    def _fingerprint_of(self, agent: BaseAlgorithm) -> dict[str, str]:
        if not self._fingerprint:
            self._fingerprint = numeric_fingerprint(str(agent.device))
        return self._fingerprint

    def _moment(self, agent: BaseAlgorithm, buffer: Any) -> tuple[int, int]:
        return int(buffer.pos), int(agent.num_timesteps)

    def _about(self, agent: BaseAlgorithm) -> dict[str, Any]:
        for output in agent.logger.output_formats:
            if hasattr(output, "flush"):
                output.flush()
        missed = [*unsaved(self.callbacks), *unrecorded_calls(agent.env)]
        missed += [
            f"model.{name} was replaced, which a checkpoint does not hold"
            for name in self._replaced(agent)
        ]
        missed += [
            f"VecNormalize.{name} was changed, which a checkpoint does not hold"
            for name, value in normalize_settings(agent.env).items()
            if self._settings.get(name, value) != value
        ]
        buffer = getattr(agent, "replay_buffer", None)
        in_buffer = None if buffer is None else replay_rows.unsaved_parts(buffer)
        return {
            "config_hash": config_hash(self.config),
            "config": outcome_values(self.config),
            "n_timesteps": self.config.n_timesteps,
            "fingerprint": self._fingerprint_of(agent),
            "code": self.code.look(agent.env),
            "provenance": {**code_state(Path(__file__)), "time": time.time()},
            "logs": log_sizes(self.run_dir),
            "unsaved": missed if in_buffer is None else [*missed, in_buffer],
        }


def _changed_hyperparams(keys: Iterable[str]) -> list[str]:
    """Return the algorithm's arguments among configuration keys, without what is below them."""
    prefix = "algo.hyperparams."
    return [key.removeprefix(prefix).split(".")[0] for key in keys if key.startswith(prefix)]


def _start_new_episodes(agent: BaseAlgorithm) -> None:
    """Give up the running episodes, where they cannot be brought back."""
    import numpy as np

    agent._last_obs = agent.env.reset()
    agent._last_episode_starts = np.ones((agent.n_envs,), dtype=bool)
    normalize = agent.get_vec_normalize_env()
    if normalize is not None:
        agent._last_original_obs = normalize.get_original_obs()
    buffer = getattr(agent, "replay_buffer", None)
    if buffer is not None:
        replay_rows.end_running_episodes(buffer)
