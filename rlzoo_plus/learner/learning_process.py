"""The process that learns: an ordinary training, whose environment is played in another process."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlzoo_plus import accelerators
from rlzoo_plus.agents.policy import save_policy
from rlzoo_plus.artifacts.result import TrainResult
from rlzoo_plus.artifacts.run_dir import INTERRUPTED, RunDir
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.learner.child_process import answering, held
from rlzoo_plus.learner.fed_env import ACTS, HAS_ENDED, IS_DEAD, Reader
from rlzoo_plus.learner.fed_manager import FedManager
from rlzoo_plus.learner.transition_log import FILE, Layout, LogReader
from rlzoo_plus.learner.weights_board import Board, pack_weights
from rlzoo_plus.runs.printing import plain_console, set_up_logging

LOCK = ".learner.lock"
# The process that acts must not wait for a core.
_NICER = 5


class RobotManager(FedManager):
    """Trains one run with what a robot does."""

    fed_by = "run-robot --learn"

    def feed_from(self, board: int, actor: Callable[[], str]) -> None:
        """Say where weights go to, by the descriptor of a `Board`, and what who acts is doing."""
        self._board, self._what_acts = board, actor

    def _actor(self) -> str:
        return self._what_acts()

    def _open(
        self, stack: contextlib.ExitStack, agent: Any, layout: Layout
    ) -> tuple[Reader, Board]:
        reader = LogReader(self.run_dir.path / FILE, layout)
        stack.callback(reader.close)
        there = reader.count()
        if agent.resume_from > there:
            raise ConfigError(
                f"{self.run_dir.path} was trained beyond its {there:,} transitions, in "
                f"simulation. Begin a new run from it: init_from={self.run_dir.path}."
            )
        return reader, Board(len(pack_weights(agent)), self._board)

    def _learn(self, agent: Any, *given: Any) -> TrainResult | None:
        result = super()._learn(agent, *given)
        assert result is not None  # a curriculum is refused
        if result.state == INTERRUPTED:
            save_policy(self.run_dir.final, agent, self.config, {"step": agent.num_timesteps})
        return result


def serve(ticket: dict[str, Any]) -> int:
    """Learn as the ticket says; return the exit code.

    A further line of the input says that nothing more is appended to the log. An input that ends
    without it is that of a process that died.
    """
    return answering(lambda _: _learn(ticket).reason)


def _learn(ticket: dict[str, Any]) -> TrainResult:
    config: RunConfig = validate_config(ticket["config"])
    import_packages(config)
    accelerators.before_torch(config)
    set_up_logging("warning", plain_console())
    run_dir = RunDir(Path(ticket["run_dir"]))
    with held(run_dir.path / LOCK):
        if ticket["in_real_time"]:
            os.nice(_NICER)
        manager = RobotManager(config, run_dir)
        manager.feed_from(ticket["board"], _Actor())
        return manager.train()


class _Actor:
    """What the process that acts is doing, from our input."""

    def __init__(self) -> None:
        self._known = ACTS

    def __call__(self) -> str:
        if self._known != IS_DEAD and select.select([0], [], [], 0)[0]:
            line = os.read(0, 64)
            # It closes the input as it ends, too.
            if self._known == ACTS:
                self._known = HAS_ENDED if line else IS_DEAD
        return self._known
