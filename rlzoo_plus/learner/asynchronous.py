"""Training with `asynchronous`: this process learns while another one collects.

The way in for `train`: all else of a run, its evaluations, checkpoints and signals, is as usual.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

from rlzoo_plus.artifacts.result import TrainResult
from rlzoo_plus.config.shares import queue_of
from rlzoo_plus.errors import USER_ERROR, ConfigError, RunError
from rlzoo_plus.learner.child_process import Child
from rlzoo_plus.learner.collecting_process import GO, READY
from rlzoo_plus.learner.fed_env import ACTS, HAS_ENDED, Reader
from rlzoo_plus.learner.fed_manager import FedManager
from rlzoo_plus.learner.log_segments import FOLDER, SegmentReader, begin_at
from rlzoo_plus.learner.transition_log import Layout
from rlzoo_plus.learner.weights_board import Board, empty_file, pack_weights
from rlzoo_plus.processes import how_it_ended

log = logging.getLogger(__name__)


class AsynchronousManager(FedManager):
    """Trains one run with what a process that it starts collects."""

    fed_by = "asynchronous"

    def train(self) -> TrainResult:
        """Train, evaluate and save the policy; see `ExpManager.train`."""
        self._child: Child | None = None
        self._memory = empty_file()
        try:
            return super().train()
        finally:
            if self._child is not None:
                self._child.stop()
            os.close(self._memory)

    def _make_train_env(self, stage: int) -> Any:
        ticket = {
            "config": self.config.model_dump(mode="json"),
            "folder": str((self.run_dir.path / FOLDER).absolute()),
            "board": self._memory,
            "queue": queue_of(self.config),
        }
        # It imports and builds beside this process.
        self._child = Child("collecting_process", ticket, self._memory)
        env = super()._make_train_env(stage)
        if self._child.read_line() != READY:
            raise self._end_of(self._child)
        return env

    def _open(
        self, stack: contextlib.ExitStack, agent: Any, layout: Layout
    ) -> tuple[Reader, Board]:
        board = Board(len(pack_weights(agent)), self._memory)
        folder, step = self.run_dir.path / FOLDER, int(agent.resume_from)
        end = begin_at(folder, layout, step, agent.n_envs)
        board.written = end
        board.note(step, 0)
        if end > step:
            log.info("learns first from the steps %d to %d, collected before", step + 1, end)
        child = self._child
        assert child is not None
        child.tell(GO)
        reader = SegmentReader(folder, layout, step, self._needed_from)
        stack.callback(reader.close)
        return reader, board

    def _needed_from(self) -> int:
        """Return the step of the checkpoint before the newest: the newest may be damaged."""
        return next(iter(self.run_dir.checkpoints().steps()[-2:]), 0)

    def _actor(self) -> str:
        child = self._child
        assert child is not None
        if child.poll() is not None:
            raise self._end_of(child)
        return ACTS if self._stop.signal_number is None else HAS_ENDED

    def _reason(self) -> str:
        return self._stop.signal_reason

    def _end_of(self, child: Child) -> Exception:
        """Return why the process that collects has ended, in its own words if it has some."""
        words = child.last_words()
        code = child.returncode
        if code == USER_ERROR:
            return ConfigError(words)
        if code is not None and code < 0:
            words = f"it {how_it_ended(code)}."
        return RunError(f"the process that collects has ended: {words}")
