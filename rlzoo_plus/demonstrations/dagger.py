"""DAgger: a policy learns what a teacher does where the policy itself leads to.

Ross, Gordon and Bagnell, "A Reduction of Imitation Learning and Structured Prediction to No-Regret
Online Learning", 2011. Each iteration is a round: teacher and policy act in turn, every observation
is labelled with the teacher's action and kept, and the policy clones from all that is kept.
Distillation is the same without the teacher's turns, for a policy that sees less than its teacher.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from stable_baselines3.common.utils import FloatSchedule, obs_as_tensor

from rlzoo_plus.contracts.protocols import Batch
from rlzoo_plus.demonstrations.cloning import (
    BehaviorCloning,
    CloningCrossQ,
    CloningDQN,
    CloningSAC,
    CloningTD3,
    CloningTQC,
)
from rlzoo_plus.demonstrations.labelled_rows import LabelledRows
from rlzoo_plus.demonstrations.teacher import Teacher
from rlzoo_plus.errors import ConfigError

_AT_ONCE = 1024
# Streams of random numbers: whose turn it is, and which rows are learned from.
_TURNS, _ROWS = 1, 2


class Dagger(BehaviorCloning):
    """DAgger for the policies of PPO, A2C and TRPO, with the loss of their behaviour cloning.

    Attributes:
        teacher: Whom it learns from; set before `learn`.
        replay_buffer: All that was seen, with the teacher's actions.
    """

    teacher: Teacher | None = None

    def __init__(
        self,
        policy: str | type[BasePolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
        n_steps: int = 512,
        batch_size: int = 64,
        gradient_steps: int = 500,
        beta: float | Schedule = 1.0,
        buffer_size: int = 100_000,
        ent_weight: float = 1e-3,
        l2_weight: float = 0.0,
        stats_window_size: int = 100,
        tensorboard_log: str | None = None,
        policy_kwargs: dict[str, Any] | None = None,
        verbose: int = 0,
        seed: int | None = None,
        device: torch.device | str = "auto",
        _init_setup_model: bool = True,
    ) -> None:
        """Initialize.

        Args:
            policy: Class of the policy.
            env: Environment that both act in.
            learning_rate: Step size, or a schedule of it.
            n_steps: Steps of each environment in a round.
            batch_size: Rows a gradient step.
            gradient_steps: Updates a round; -1 for as many as steps were taken.
            beta: Share of the steps in which the teacher acts, or a schedule of it.
            buffer_size: Steps of all environments that are kept.
            ent_weight: As for `BehaviorCloning`, like what follows.
            l2_weight: Likewise.
            stats_window_size: Likewise.
            tensorboard_log: Likewise.
            policy_kwargs: Likewise.
            verbose: Likewise.
            seed: Likewise.
            device: Likewise.
            _init_setup_model: Likewise.
        """
        self.gradient_steps, self.buffer_size = gradient_steps, buffer_size
        self.beta_schedule = FloatSchedule(beta)
        super().__init__(
            policy,
            env,
            learning_rate,
            n_steps,
            batch_size,
            ent_weight,
            l2_weight,
            stats_window_size=stats_window_size,
            tensorboard_log=tensorboard_log,
            policy_kwargs=policy_kwargs,
            verbose=verbose,
            seed=seed,
            device=device,
            _init_setup_model=_init_setup_model,
        )

    def _setup_model(self) -> None:
        super()._setup_model()
        self.replay_buffer = LabelledRows(
            self.buffer_size, self.n_envs, self.observation_space, self.action_space
        )

    def collect_rollouts(self, callback: Any) -> bool:
        """Act for a round, and keep what the teacher does; return whether training goes on."""
        if self.teacher is None:
            raise ConfigError("DAgger learns from a teacher. Set teacher=RUN.")
        assert self.env is not None
        beta = self.beta_schedule(self._current_progress_remaining)
        drawn = self._generator(_TURNS, self.num_timesteps).random((self.n_steps, self.n_envs))
        self.policy.set_training_mode(False)
        callback.on_rollout_start()
        for turns in drawn < beta:
            seen = self._last_obs if self._vec_normalize_env is None else self._last_original_obs
            labels = self.teacher.actions(seen)
            actions = self._actions(labels, turns)
            self.replay_buffer.add(seen, labels)
            self._last_obs, rewards, dones, infos = self.env.step(actions)  # type: ignore[assignment]
            if self._vec_normalize_env is not None:
                self._last_original_obs = self._vec_normalize_env.get_original_obs()
            self.num_timesteps += self.n_envs
            self._update_info_buffer(infos, dones)
            callback.update_locals(locals())
            if not callback.on_step():
                return False
        callback.on_rollout_end()
        self.logger.record("rollout/beta", beta)
        return True

    def train(self, gradient_steps: int | None = None, batch_size: int | None = None) -> None:
        """Update the policy with batches of all that is kept; None: as the arguments say.

        `train/unseen_loss` is that of the newest round before the policy has learned from it.
        """
        given = self.gradient_steps, self.batch_size
        self.gradient_steps, self.batch_size = gradient_steps or given[0], batch_size or given[1]
        self._log_unseen_loss()
        super().train()
        self.gradient_steps, self.batch_size = given

    def _actions(self, labels: np.ndarray, turns: np.ndarray) -> np.ndarray:
        """Return the actions of a step: the teacher's in the environments where it is its turn."""
        if turns.all():
            return labels
        own, _ = self.policy.predict(self._last_obs, deterministic=True)  # type: ignore[arg-type]
        return np.where(turns.reshape(-1, *[1] * (labels.ndim - 1)), labels, own)

    def _next_batches(self) -> Iterator[Batch]:
        count = self.n_steps * self.n_envs if self.gradient_steps < 0 else self.gradient_steps
        generator = self._generator(_ROWS, self._n_updates)
        for _ in range(count):
            yield self._batch(generator.integers(0, len(self.replay_buffer), self.batch_size))

    def _batch(self, numbers: np.ndarray) -> Batch:
        """Return rows that are kept as the policy takes them, normalized as of now."""
        seen, labels = self.replay_buffer.rows(numbers)
        if self._vec_normalize_env is not None:
            seen = self._vec_normalize_env.normalize_obs(seen)
        targets = self._targets(labels).astype(self.action_space.dtype)
        actions = torch.as_tensor(targets, device=self.device)
        return Batch(obs_as_tensor(seen, self.device), actions)

    def _log_unseen_loss(self) -> None:
        numbers, total = self.replay_buffer.newest(self.n_steps), 0.0
        for start in range(0, len(numbers), _AT_ONCE):
            batch = self._batch(numbers[start : start + _AT_ONCE])
            total += self.eval_step(batch)["loss"] * len(batch)
        self.logger.record("train/unseen_loss", total / len(numbers))

    def _log_progress(self) -> None:
        self.logger.record("train/rows", len(self.replay_buffer), exclude="tensorboard")

    def _generator(self, stream: int, at: int) -> np.random.Generator:
        """Return a generator that a resumed run makes again: it has no state of its own."""
        return np.random.default_rng([self.seed or 0, stream, at])

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "teacher", "replay_buffer", "beta_schedule"]


class DaggerSAC(Dagger, CloningSAC):
    """DAgger for the policies of SAC."""


class DaggerTD3(Dagger, CloningTD3):
    """DAgger for the policies of TD3."""


class DaggerTQC(Dagger, CloningTQC):
    """DAgger for the policies of TQC."""


class DaggerCrossQ(Dagger, CloningCrossQ):
    """DAgger for the policies of CrossQ."""


class DaggerDQN(Dagger, CloningDQN):
    """DAgger for the policies of DQN."""
