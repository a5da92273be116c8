"""An environment that another process plays: an algorithm that steps it is fed with its log."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.envs.spaces import Space, parts_of
from rlzoo_plus.learner.transition_log import LogReader, Transition
from rlzoo_plus.learner.weights_board import Board, pack_weights
from rlzoo_plus.training.resume.snapshot import start_new_episodes

ENDED = "the session on the robot has ended"
# What the process that acts is doing: appending, nothing any more, or nothing since it died.
ACTS, HAS_ENDED, IS_DEAD = "acts", "has ended", "is dead"
_POLL_S = 0.001
# Between two measurements of the rate of updates.
_RATE_S = 1.0


class FedVecEnv(VecEnv):
    """One environment whose steps are read, not taken; actions are those of the log."""

    def __init__(self, observation_space: Space, action_space: Space) -> None:
        """Make it for an environment of these spaces; `feed` must be set before it is stepped."""
        super().__init__(1, observation_space, action_space)
        self.feed: Feed | None = None

    def reset(self) -> VecEnvObs:
        """Return what was observed before the next transition, zeros while there is none."""
        row = None if self.feed is None else self.feed.row()
        if row is not None:
            first: VecEnvObs = _batched(row.observation)
            return first
        parts = parts_of(self.observation_space)
        zeros = {k: np.zeros((1, *(s.shape or ())), s.dtype) for k, s in parts.items()}
        seen: VecEnvObs = zeros if isinstance(self.observation_space, spaces.Dict) else zeros[""]
        return seen

    def step_async(self, actions: np.ndarray) -> None:
        """Do nothing: the action is that of the transition."""

    def step_wait(self) -> VecEnvStepReturn:
        """Return the next transition, which must be there.

        After the last one of an episode, its last observation stands for the first of the next
        one, which may not have begun: `Feed` replaces it.
        """
        row = None if self.feed is None else self.feed.row()
        assert row is not None
        info = dict(row.info)
        if row.done:
            info["terminal_observation"] = row.next_observation
            info["TimeLimit.truncated"] = row.truncated and not row.terminated
        rewards, dones = np.array([row.reward], np.float32), np.array([row.done])
        return _batched(row.next_observation), rewards, dones, [info]

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the next transition follows from how many the algorithm has taken."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, as `state_dict`."""

    def close(self) -> None:
        """Do nothing: the log belongs to who opened it."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of it."""
        return [getattr(self, attr_name, None)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Do nothing: whoever plays it is elsewhere."""

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> Any:
        """Return None: whoever plays it is elsewhere."""
        return [None]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Return False."""
        return [False]


def _batched(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: part[None] for key, part in observation.items()}
    return observation[None]


class Feed:
    """Lets an off-policy algorithm of SB3 learn from a log while another process appends to it.

    Collecting stays the algorithm's own code: transition N is step N of its `learn()`, so that the
    ratio of updates to steps is the configured one, and a resume from a checkpoint of step N goes
    on with transition N.
    """

    def __init__(
        self,
        reader: LogReader,
        board: Board,
        actor: Callable[[], str],
        kept_step: Callable[[], int],
    ) -> None:
        """Feed from a log.

        Args:
            reader: Of the log.
            board: Where progress and weights are handed over.
            actor: Returns what the process that acts is doing.
            kept_step: Returns the step of the newest checkpoint.
        """
        self._reader, self._board, self._actor = reader, board, actor
        self._kept_step = kept_step
        self._agent: Any = None
        self._rate_at = (time.monotonic(), 0)

    def attach(self, agent: Any, fed: FedVecEnv, save: Callable[[], None]) -> None:
        """Let an agent take its actions and transitions from the log.

        Args:
            agent: Built on `fed`.
            fed: Its environment.
            save: Writes a checkpoint, at the top of an iteration.
        """
        self._agent, self._save, fed.feed = agent, save, self
        agent._sample_action = self._sample_action

    def row(self) -> Transition | None:
        """Return the next transition, None if it is not there yet."""
        return self._reader.row(int(self._agent.num_timesteps))

    def on_iteration(self) -> None:
        """Hand over what was learned, and wait for the next transition.

        Raises:
            StopTraining: There is none and will be none; a checkpoint is saved.
        """
        agent, board = self._agent, self._board
        step, updates = int(agent.num_timesteps), int(agent._n_updates)
        # Weights first: who sees that these transitions were taken finds what was learned of them.
        board.publish(pack_weights(agent), step)
        board.note(step, updates)
        now, (since, before) = time.monotonic(), self._rate_at
        if now - since >= _RATE_S:
            agent.logger.record("learner/updates_per_s", (updates - before) / (now - since))
            self._rate_at = now, updates
        # After a death the next session learns from what is left.
        if self._actor() == IS_DEAD or not self._wait():
            self._save()
            raise StopTraining(ENDED, interrupted=True)

    def _wait(self) -> bool:
        """Return whether there is a next transition, once that is known."""
        while self.row() is None:
            # In this order: what was appended before the end is there.
            if self._actor() != ACTS and self.row() is None:
                return False
            time.sleep(_POLL_S)
        return True

    def _sample_action(self, *_: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the action of the next transition, in place of one that the algorithm chooses."""
        agent = self._agent
        if not self._wait():
            # Within an iteration of several steps: those since the checkpoint are read again.
            agent.num_timesteps = self._kept_step()
            raise StopTraining(ENDED, interrupted=True)
        row = self.row()
        assert row is not None
        if row.is_first:
            start_new_episodes(agent)
        behind = row.number - row.weights_step
        agent.logger.record_mean("learner/policy_lag", behind)
        agent.logger.record_mean("learner/queue_fill", self._board.written - row.number)
        action = row.action[None]
        return action, agent.policy.scale_action(action)
