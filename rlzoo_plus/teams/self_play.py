"""Self-play: the policy that learns meets frozen earlier ones of its run, which are rated."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.teams.one_sided import RESULT, OneSidedVecEnv
from rlzoo_plus.teams.opponent_pool import OpponentPool
from rlzoo_plus.teams.pettingzoo_vec_env import worlds_of
from rlzoo_plus.training.callbacks.base import RunCallback
from rlzoo_plus.training.callbacks.evaluation_callback import EvaluationCallback
from rlzoo_plus.training.evaluation import evaluate


class SelfPlayCallback(RunCallback):
    """Callback that takes snapshots as opponents, rates episodes, and plays evaluations with both.

    The pool is in each checkpoint, so that a snapshot is on the disk as long as a checkpoint needs
    it, and a killed run goes on against the same opponents.

    Attributes:
        pool: The opponents.
    """

    def __init__(self, config: RunConfig, evaluation: EvaluationCallback | None) -> None:
        super().__init__()
        self.pool, self.evaluation = OpponentPool(config), evaluation
        self._deterministic = config.eval.deterministic
        self._next = 0
        if evaluation is not None:
            evaluation.plays_more = self._play_the_pool

    def _on_training_start(self) -> None:
        _worlds_of(self.training_env).opponents = self.pool

    def on_iteration(self) -> None:
        """Take a snapshot if it is time, and log the rating."""
        step, settings = int(self.model.num_timesteps), self.pool.settings
        if settings.learns_from_itself and step >= self._next:
            in_use = _worlds_of(self.training_env).opponents_in_use()
            self.pool.add(step, self.model, in_use)
            self._next = (step // settings.every_steps + 1) * settings.every_steps
        self.logger.record("selfplay/elo", self.pool.rating)
        self.logger.record("selfplay/pool", len(self.pool.drawn))

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if RESULT in info:
                self.pool.rate(*info[RESULT])
        return True

    def _play_the_pool(self, policy: Policy) -> list[dict[str, float]]:
        """Play the episodes of an evaluation against the pool; return how they ended.

        Raises:
            EvaluationStopped: The run is to end.
        """
        evaluation = self.evaluation
        assert evaluation is not None
        venv = evaluation.player
        assert isinstance(venv, VecEnv)
        if not self.pool.opponents:
            return []
        worlds = _worlds_of(venv)
        worlds.opponents = self.pool
        try:
            played = evaluate(
                policy,
                venv,
                evaluation.seeds,
                deterministic=self._deterministic,
                is_asked_to_stop=lambda: evaluation.stop.signal_number is not None,
            )
        finally:
            worlds.opponents = None
        return [
            {name: value for name, value in numbers.items() if name.endswith("_rate/pool")}
            for numbers in played.measured
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the pool, and when the next snapshot is."""
        return {"next": self._next, "pool": self.pool.state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore them."""
        if type(state["next"]) is not int:
            raise ValueError("the step of the next snapshot is not a whole number")
        self._next = state["next"]
        self.pool.restore(state["pool"], self.model)


def _worlds_of(venv: Any) -> OneSidedVecEnv:
    """Return the worlds inside of wrappers."""
    worlds = worlds_of(venv)
    assert isinstance(worlds, OneSidedVecEnv)
    return worlds
