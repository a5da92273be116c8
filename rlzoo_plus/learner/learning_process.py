"""The process that learns: an ordinary training, whose environment is played in another process."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlzoo_plus import accelerators
from rlzoo_plus.agents.policy import save_policy
from rlzoo_plus.artifacts.result import TrainResult
from rlzoo_plus.artifacts.run_dir import INTERRUPTED, RunDir, RunLock
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.factory import make_eval_env, steps_alike, wrapped_for_training
from rlzoo_plus.envs.finite import FiniteVecEnv
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError
from rlzoo_plus.learner.fed_env import ACTS, HAS_ENDED, IS_DEAD, FedVecEnv, Feed
from rlzoo_plus.learner.transition_log import FILE, Layout, LogReader
from rlzoo_plus.learner.weights_board import Board, pack_weights
from rlzoo_plus.runs.printing import plain_console, set_up_logging
from rlzoo_plus.training.callbacks import RunCallbacks
from rlzoo_plus.training.exp_manager import ExpManager
from rlzoo_plus.training.resume.snapshot import Exactness

log = logging.getLogger(__name__)
LOCK = ".learner.lock"
NOT_EXACT = "another process acted meanwhile: how old its weights were is not repeatable"
# A process of before may be writing its last checkpoint.
_PATIENCE_S = 60.0
# The process that acts must not wait for a core.
_NICER = 5


class FedManager(ExpManager):
    """Trains one run with what another process does."""

    def feed_from(self, board: int, actor: Callable[[], str]) -> None:
        """Say where weights go to, by the descriptor of a `Board`, and what who acts is doing."""
        self._board, self._actor = board, actor

    def _make_train_env(self, stage: int) -> Any:
        probe = make_eval_env(self.config.env, 1, steps_alike(self.config))
        self._fed = FedVecEnv(probe.observation_space, probe.action_space)
        probe.close()
        own = OwnVecEnv(self._fed, "run-robot --learn", self.run_dir.monitor)
        return wrapped_for_training(FiniteVecEnv(own), self.config)

    def _attach(self, stack: contextlib.ExitStack, agent: Any, *given: Any) -> RunCallbacks:
        callbacks = super()._attach(stack, agent, *given)
        layout = Layout(self._fed.observation_space, self._fed.action_space)  # type: ignore[arg-type]
        reader = LogReader(self.run_dir.path / FILE, layout)
        stack.callback(reader.close)
        there, saving = reader.count(), callbacks.checkpoint
        if agent.resume_from > there:
            raise ConfigError(
                f"{self.run_dir.path} was trained beyond its {there:,} transitions, in "
                f"simulation. Begin a new run from it: init_from={self.run_dir.path}."
            )
        saving.snapshot.exactness = Exactness([], 0, [NOT_EXACT])
        board = Board(len(pack_weights(agent)), self._board)
        feed = Feed(reader, board, self._actor, lambda: saving.last_step)
        feed.attach(agent, self._fed, lambda: saving.save(waits=True))
        agent.before_iteration = [*agent.before_iteration, feed.on_iteration]
        return callbacks

    def _learn(self, agent: Any, *given: Any) -> TrainResult | None:
        result = super()._learn(agent, *given)
        assert result is not None  # a curriculum is refused
        if result.state == INTERRUPTED:
            save_policy(self.run_dir.final, agent, self.config, {"step": agent.num_timesteps})
        return result


def serve(ticket: dict[str, Any]) -> int:
    """Learn as the ticket says, the first line of the input; return the exit code.

    A second line says that nothing more is appended to the log. An input that ends without it is
    that of a process that died. The output is a line with the outcome in JSON.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    code, answer = 0, {}
    try:
        answer = {"reason": _learn(ticket).reason}
    except ConfigError as error:
        code, answer = USER_ERROR, {"error": str(error)}
    # The user's own code can raise anything.
    except Exception as error:
        log.debug("learning was ended by", exc_info=True)
        is_known = isinstance(error, RunError)
        text = str(error) if is_known else f"{type(error).__name__}: {one_line(error)}"
        code, answer = RUN_ERROR, {"error": text}
    with contextlib.suppress(OSError), answers:
        json.dump(answer, answers)
    return code


def _learn(ticket: dict[str, Any]) -> TrainResult:
    config: RunConfig = validate_config(ticket["config"])
    import_packages(config)
    accelerators.before_torch(config)
    set_up_logging("warning", plain_console())
    run_dir = RunDir(Path(ticket["run_dir"]))
    lock, end = RunLock(run_dir.path / LOCK), time.monotonic() + _PATIENCE_S
    while not lock.acquire():
        if time.monotonic() > end:
            raise RunError(f"{run_dir.path}: the learner of an earlier session does not end.")
    with lock:
        if ticket["in_real_time"]:
            os.nice(_NICER)
        manager = FedManager(config, run_dir)
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
