"""An environment that another process plays: an algorithm that steps it is fed with its log."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.envs.spaces import Space, parts_of
from rlzoo_plus.learner.transition_log import Transition
from rlzoo_plus.learner.weights_board import Board, pack_weights
from rlzoo_plus.training.resume.snapshot import start_new_episodes

ENDED = "the session on the robot has ended"
# What the process that acts is doing: appending, nothing any more, or nothing since it died.
ACTS, HAS_ENDED, IS_DEAD = "acts", "has ended", "is dead"
_POLL_S = 0.001
# Between two measurements of the rate of updates.
_RATE_S = 1.0


class Reader(Protocol):
    """Reads transitions by their number."""

    def row(self, number: int) -> Transition | None:
        """Return a transition; None if it is not there yet."""


class FedVecEnv(VecEnv):
    """Environments whose steps are read, not taken; actions are those of the log."""

    def __init__(self, observation_space: Space, action_space: Space, n_envs: int = 1) -> None:
        """Make it for environments of these spaces; `feed` must be set before it is stepped."""
        super().__init__(n_envs, observation_space, action_space)
        self.feed: Feed | None = None

    def reset(self) -> VecEnvObs:
        """Return what was observed before the next transition, zeros while there is none."""
        rows = None if self.feed is None else self.feed.rows()
        if rows is not None:
            first: VecEnvObs = _batched([row.observation for row in rows])
            return first
        parts = parts_of(self.observation_space)
        n_envs = self.num_envs
        zeros = {k: np.zeros((n_envs, *(s.shape or ())), s.dtype) for k, s in parts.items()}
        seen: VecEnvObs = zeros if isinstance(self.observation_space, spaces.Dict) else zeros[""]
        return seen

    def step_async(self, actions: np.ndarray) -> None:
        """Do nothing: the action is that of the transition."""

    def step_wait(self) -> VecEnvStepReturn:
        """Return the next transition of each environment, which must be there.

        After the last one of an episode comes the first observation of the next one. Where that
        is not known yet, the last one stands for it, and `Feed` replaces it.
        """
        rows = None if self.feed is None else self.feed.rows()
        assert rows is not None
        seen, infos = [], []
        for row in rows:
            info = dict(row.info)
            if row.done:
                info["terminal_observation"] = row.next_observation
                info["TimeLimit.truncated"] = row.truncated and not row.terminated
            seen.append(row.next_observation if row.following is None else row.following)
            infos.append(info)
        rewards = np.array([row.reward for row in rows], np.float32)
        return _batched(seen), rewards, np.array([row.done for row in rows]), infos

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the next transition follows from how many the algorithm has taken."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, as `state_dict`."""

    def close(self) -> None:
        """Do nothing: the log belongs to who opened it."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of it, for each environment."""
        return [getattr(self, attr_name, None) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Do nothing: whoever plays it is elsewhere."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Return None for each environment: whoever plays it is elsewhere."""
        return [None for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False for _ in self._get_indices(indices)]


def _batched(observations: Sequence[Any]) -> Any:
    first = observations[0]
    if isinstance(first, dict):
        return {key: np.stack([one[key] for one in observations]) for key in first}
    return np.stack(observations)


class Feed:
    """Lets an off-policy algorithm of SB3 learn from a log while another process appends to it.

    Collecting stays the algorithm's own code: transition N is step N of its `learn()`, so that the
    ratio of updates to steps is the configured one, and a resume from a checkpoint of step N goes
    on with transition N.
    """

    def __init__(
        self,
        reader: Reader,
        board: Board,
        actor: Callable[[], str],
        kept_step: Callable[[], int],
        reason: Callable[[], str] = lambda: ENDED,
    ) -> None:
        """Feed from a log.

        Args:
            reader: Of the log.
            board: Where progress and weights are handed over.
            actor: Returns what the process that acts is doing.
            kept_step: Returns the step of the newest checkpoint.
            reason: Returns why nothing is appended any more.
        """
        self._reader, self._board, self._actor = reader, board, actor
        self._kept_step, self._reason = kept_step, reason
        self._agent: Any = None
        # Time, steps and updates of the last measurement; a resumed run begins with some.
        self._rate_at: tuple[float, int, int] | None = None
        self._known: list[Transition] = []
        # Updates that weights were made with, by their step: of those that may act still.
        self._updates_at: dict[int, int] = {}

    def attach(self, agent: Any, fed: FedVecEnv, save: Callable[[], None]) -> None:
        """Let an agent take its actions and transitions from the log.

        Args:
            agent: Built on `fed`.
            fed: Its environment.
            save: Writes a checkpoint, at the top of an iteration.
        """
        self._agent, self._save, fed.feed = agent, save, self
        kind = type(agent)
        # A method of the class: updates are not recorded where an object has one of its own.
        own = {"_sample_action": lambda _, *given: self.sample_action(), "__module__": __name__}
        agent.__class__ = type(kind.__name__, (kind,), {**own, "__doc__": kind.__doc__})
        if hasattr(agent, "rollouts"):
            # Acting would be recorded, which is done elsewhere.
            agent.rollouts = None

    def rows(self) -> list[Transition] | None:
        """Return the next transition of each environment, None if they are not there yet."""
        first, count = int(self._agent.num_timesteps), int(self._agent.n_envs)
        if self._known and self._known[0].number != first:
            self._known = []
        while len(self._known) < count:
            row = self._reader.row(first + len(self._known))
            if row is None:
                return None
            self._known.append(row)
        return self._known

    def begin(self) -> None:
        """Hand over the weights that a new run begins with, and wait for the first transition."""
        self._hand_over()
        self._wait()

    def on_iteration(self) -> None:
        """Hand over what was learned, and wait for the next transition.

        Raises:
            StopTraining: There is none and will be none; a checkpoint is saved.
        """
        self._hand_over()
        # After a death the next session learns from what is left.
        if self._actor() == IS_DEAD or not self._wait():
            self._save()
            raise StopTraining(self._reason(), interrupted=True)

    def _hand_over(self) -> None:
        agent, board = self._agent, self._board
        step, updates = int(agent.num_timesteps), int(agent._n_updates)
        # Weights first: who sees that these transitions were taken finds what was learned of them.
        board.publish(pack_weights(agent), step)
        board.note(step, updates)
        self._updates_at[step] = updates
        now = time.monotonic()
        since, steps_before, before = self._rate_at = self._rate_at or (now, step, updates)
        if now - since >= _RATE_S:
            agent.logger.record("learner/updates_per_s", (updates - before) / (now - since))
            agent.logger.record("learner/steps_per_s", (step - steps_before) / (now - since))
            self._rate_at = now, step, updates

    def _wait(self) -> bool:
        """Return whether there is a next transition, once that is known."""
        while self.rows() is None:
            # In this order: what was appended before the end is there.
            if self._actor() != ACTS and self.rows() is None:
                return False
            time.sleep(_POLL_S)
        return True

    def sample_action(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the action of the next transition, in place of one that the algorithm chooses."""
        agent = self._agent
        if not self._wait():
            # Within an iteration of several steps: those since the checkpoint are read again.
            agent.num_timesteps = self._kept_step()
            raise StopTraining(self._reason(), interrupted=True)
        rows = self.rows()
        assert rows is not None
        if any(row.is_first for row in rows):
            start_new_episodes(agent)
        # An iteration may be longer than the queue, so who acts must not wait for its end.
        self._board.note(rows[-1].number + 1, int(agent._n_updates))
        self._log_lag(rows[0])
        action = np.stack([row.action for row in rows])
        is_box = isinstance(agent.action_space, spaces.Box)
        return action, agent.policy.scale_action(action) if is_box else action

    def _log_lag(self, row: Transition) -> None:
        record = self._agent.logger.record_mean
        record("learner/policy_lag", row.number - row.weights_step)
        record("learner/queue_fill", self._board.written - row.number)
        for step in [step for step in self._updates_at if step < row.weights_step]:
            del self._updates_at[step]
        # Weights of an earlier session are not known.
        if row.weights_step in self._updates_at:
            newer = int(self._agent._n_updates) - self._updates_at[row.weights_step]
            record("learner/policy_lag_updates", newer)
