"""`FedManager` trains a run in this process with what another process does."""

from __future__ import annotations

import contextlib
from typing import Any

from rlzoo_plus.artifacts.result import ANOTHER_ACTED
from rlzoo_plus.envs.factory import make_eval_env, steps_alike, wrapped_for_training
from rlzoo_plus.envs.finite import FiniteVecEnv
from rlzoo_plus.envs.own_vec_env import OwnVecEnv
from rlzoo_plus.learner.fed_env import ENDED, FedVecEnv, Feed, Reader
from rlzoo_plus.learner.transition_log import Layout
from rlzoo_plus.learner.weights_board import Board
from rlzoo_plus.training.callbacks import RunCallbacks
from rlzoo_plus.training.exp_manager import ExpManager
from rlzoo_plus.training.resume.snapshot import Exactness


class FedManager(ExpManager):
    """Trains one run with what another process does; subclasses know that process.

    Attributes:
        fed_by: What the environment is called in messages.
    """

    fed_by: str

    def _open(
        self, stack: contextlib.ExitStack, agent: Any, layout: Layout
    ) -> tuple[Reader, Board]:
        """Return a reader of the log, and where weights go to; the stack closes them."""
        raise NotImplementedError

    def _actor(self) -> str:
        """Return what the process that acts is doing, see `fed_env`."""
        raise NotImplementedError

    def _reason(self) -> str:
        """Return why nothing is appended any more."""
        return ENDED

    def _make_train_env(self, stage: int) -> Any:
        del stage  # a curriculum is refused
        probe = make_eval_env(self.config.env, 1, steps_alike(self.config))
        # A world of several agents has a row for each.
        n_envs = probe.num_envs * self.config.n_envs
        self._fed = FedVecEnv(probe.observation_space, probe.action_space, n_envs)
        probe.close()
        own = OwnVecEnv(self._fed, self.fed_by, self.run_dir.monitor)
        return wrapped_for_training(FiniteVecEnv(own), self.config)

    def _attach(self, stack: contextlib.ExitStack, agent: Any, *given: Any) -> RunCallbacks:
        callbacks = super()._attach(stack, agent, *given)
        saving = callbacks.checkpoint
        saving.snapshot.exactness = Exactness([], 0, [ANOTHER_ACTED])
        layout = Layout(self._fed.observation_space, self._fed.action_space)
        reader, board = self._open(stack, agent, layout)
        feed = Feed(reader, board, self._actor, lambda: saving.last_step, self._reason)
        feed.attach(agent, self._fed, lambda: saving.save(waits=True))
        agent.before_iteration = [*agent.before_iteration, feed.on_iteration]
        if not agent.resume_from:
            feed.begin()
        return callbacks
