"""Behaviour cloning: a policy learns to choose the actions of demonstrations.

An algorithm like those of Stable-Baselines3, for the policy class of one of them: what it learns is
a warm start of that algorithm. A step is a step of the demonstrations, each taken once an epoch;
the environment is never stepped.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.type_aliases import GymEnv, Schedule
from torch import Tensor

from rlzoo_plus.contracts.protocols import Batch
from rlzoo_plus.demonstrations.batches import Batches
from rlzoo_plus.demonstrations.dataset import Dataset
from rlzoo_plus.errors import ConfigError

# The networks that follow others in training, by name of the one that is followed.
_FOLLOWED = ("actor", "q_net")


class BehaviorCloning(BaseAlgorithm):
    """Behaviour cloning for the policies of PPO, A2C and TRPO.

    The loss is that of the package `imitation`: the negative mean log probability of the actions,
    less `ent_weight` times the entropy, plus `l2_weight` times half the sum of squared weights.

    Attributes:
        demonstrations: What it learns from; set before `learn`.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = PPO.policy_aliases
    demonstrations: Dataset | None = None

    def __init__(
        self,
        policy: str | type[BasePolicy],
        env: GymEnv | str,
        learning_rate: float | Schedule = 1e-3,
        n_steps: int = 2048,
        batch_size: int = 64,
        ent_weight: float = 1e-3,
        l2_weight: float = 0.0,
        held_out: float = 0.1,
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
            env: Environment whose spaces are those of the demonstrations.
            learning_rate: Step size, or a schedule of it.
            n_steps: Steps of demonstrations an iteration, for each environment.
            batch_size: Steps a gradient step.
            ent_weight: Weight of the entropy in the loss.
            l2_weight: Weight of half the sum of all squared weights in the loss.
            held_out: Share of the episodes that is not learned from, for a loss of its own.
            stats_window_size: As in Stable-Baselines3.
            tensorboard_log: As in Stable-Baselines3.
            policy_kwargs: Arguments of the policy.
            verbose: As in Stable-Baselines3.
            seed: Of all random numbers.
            device: Where it computes.
            _init_setup_model: Whether the policy is built now.
        """
        super().__init__(
            policy,
            env,
            learning_rate,
            policy_kwargs,
            stats_window_size,
            tensorboard_log,
            verbose,
            device,
            support_multi_env=True,
            seed=seed,
        )
        if env is not None and n_steps * self.n_envs < batch_size:
            given = f"algo.hyperparams.batch_size={batch_size} is above n_steps={n_steps}"
            raise ConfigError(f"{given}: no update would be made. Set it lower.")
        self.n_steps, self.batch_size, self.held_out = n_steps, batch_size, held_out
        self.ent_weight, self.l2_weight = ent_weight, l2_weight
        # Rows that were given to updates, over all epochs.
        self.n_taken = 0
        self._batches = Batches()
        if _init_setup_model:
            self._setup_model()

    def _setup_model(self) -> None:
        self._setup_lr_schedule()
        self.set_random_seed(self.seed)
        kind: Any = self.policy_class
        self.policy = kind(
            self.observation_space, self.action_space, self.lr_schedule, **self.policy_kwargs
        ).to(self.device)

    def learn(
        self,
        total_timesteps: int,
        callback: Any = None,
        log_interval: int = 1,
        tb_log_name: str = "BC",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> BehaviorCloning:
        """Learn, as `learn` of Stable-Baselines3."""
        total_timesteps, callback = self._setup_learn(
            total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar
        )
        callback.on_training_start(locals(), globals())
        iteration = 0
        while self.num_timesteps < total_timesteps:
            if not self.collect_rollouts(callback):
                break
            iteration += 1
            self._update_current_progress_remaining(self.num_timesteps, total_timesteps)
            self.train()
            if iteration % log_interval == 0:
                self.dump_logs()
        callback.on_training_end()
        return self

    def collect_rollouts(self, callback: Any) -> bool:
        """Count the steps of an iteration; return whether training goes on."""
        if not self._batches.is_ready:
            # Not earlier: a resumed run has the statistics of its observations from here on.
            self._prepare()
        callback.on_rollout_start()
        self.num_timesteps += self.n_steps * self.n_envs
        callback.update_locals(locals())
        goes_on = bool(callback.on_step())
        callback.on_rollout_end()
        return goes_on

    def train(self) -> None:
        """Update the policy with the steps of an iteration."""
        self._update_learning_rate(attrgetter(self._optimizer)(self))
        losses = [self.train_step(batch) for batch in self._next_batches()]
        self._n_updates += len(losses)
        for name in _FOLLOWED:
            if hasattr(self.policy, f"{name}_target"):
                followed = getattr(self.policy, name).state_dict()
                getattr(self.policy, f"{name}_target").load_state_dict(followed)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name in losses[0]:
            self.logger.record(f"train/{name}", float(np.mean([one[name] for one in losses])))
        self._log_progress()

    def _next_batches(self) -> Iterator[Batch]:
        """Yield the batches of an iteration."""
        for _ in range(self.n_steps * self.n_envs // self.batch_size):
            yield self._batches.next(self.n_taken, self.batch_size, self.seed or 0)
            self.n_taken += self.batch_size

    def train_step(self, batch: Batch) -> dict[str, float]:
        """Update once, as a `Trainer` of `rlzoo_plus.contracts`; return the losses by name."""
        self.policy.set_training_mode(True)
        optimizer = attrgetter(self._optimizer)(self)
        loss, parts = self.loss(batch.observations, batch.actions)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return {**parts, "loss": loss.item()}

    def eval_step(self, batch: Batch) -> dict[str, float]:
        """Return the losses of a batch by name; nothing changes."""
        self.policy.set_training_mode(False)
        with torch.no_grad():
            loss, parts = self.loss(batch.observations, batch.actions)
        return {**parts, "loss": loss.item()}

    def loss(self, observations: Any, actions: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch, and its parts by name.

        Args:
            observations: Normalized as the policy takes them.
            actions: As `_targets` returns them.
        """
        assert isinstance(self.policy, ActorCriticPolicy)
        _, log_prob, entropy = self.policy.evaluate_actions(observations, actions)
        log_prob = log_prob.mean()
        loss = -log_prob
        parts = {"neglogp": -log_prob.item()}
        if entropy is not None:
            parts["entropy"] = entropy.mean().item()
            loss = loss - self.ent_weight * entropy.mean()
        return loss + self._l2(), parts

    def _l2(self) -> Tensor | float:
        if not self.l2_weight:
            return 0.0
        squares = [torch.sum(torch.square(weight)) for weight in self.policy.parameters()]
        return self.l2_weight * (sum(squares) / 2)

    @property
    def _optimizer(self) -> str:
        """Name of the optimizer that learns."""
        return "policy.actor.optimizer" if hasattr(self.policy, "actor") else "policy.optimizer"

    def _get_torch_save_params(self) -> tuple[list[str], list[str]]:
        return ["policy", self._optimizer], []

    def _excluded_save_params(self) -> list[str]:
        own = ("demonstrations", "_batches")
        return [*super()._excluded_save_params(), *own]

    def _targets(self, actions: np.ndarray) -> np.ndarray:
        """Return demonstrated actions as the loss compares them."""
        if isinstance(self.action_space, spaces.Box):
            actions = np.clip(actions, self.action_space.low, self.action_space.high)
        return actions

    def _prepare(self) -> None:
        if self.demonstrations is None:
            raise ConfigError("behaviour cloning learns from demonstrations. Set data=DATASET.")
        normalizer = self._vec_normalize_env
        self._batches.prepare(
            self.demonstrations,
            self.held_out,
            self.device,
            normalize=normalizer.normalize_obs if normalizer else lambda rows: rows,
            targets=self._targets,
        )

    def _log_progress(self) -> None:
        """Record how far it is, and the loss of the episodes that are held out."""
        self.logger.record("train/epoch", self.n_taken / self._batches.n_rows)
        total, count = 0.0, 0
        for batch in self._batches.held_out():
            total += self.eval_step(batch)["loss"] * len(batch)
            count += len(batch)
        if count:
            self.logger.record("train/held_out_loss", total / count)

    def dump_logs(self) -> None:
        """Write the log."""
        self.logger.record("time/total_timesteps", self.num_timesteps, exclude="tensorboard")
        self.logger.dump(step=self.num_timesteps)


class _CloningAnActor(BehaviorCloning):
    """Behaviour cloning for policies with an actor: mean squared error of its best actions.

    Actions are compared as the actor gives them, between -1 and 1.
    """

    def loss(self, observations: Any, actions: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch, as for `BehaviorCloning`."""
        error = torch.mean(torch.square(self.policy._predict(observations, True) - actions))
        return error + self._l2(), {"squared_error": error.item()}

    def _targets(self, actions: np.ndarray) -> np.ndarray:
        policy: Any = self.policy
        scaled: np.ndarray = policy.scale_action(super()._targets(actions))
        return scaled


class CloningSAC(_CloningAnActor):
    """Behaviour cloning for the policies of SAC."""

    policy_aliases = SAC.policy_aliases


class CloningTD3(_CloningAnActor):
    """Behaviour cloning for the policies of TD3."""

    policy_aliases = TD3.policy_aliases


class CloningTQC(_CloningAnActor):
    """Behaviour cloning for the policies of TQC."""

    policy_aliases = TQC.policy_aliases


class CloningCrossQ(_CloningAnActor):
    """Behaviour cloning for the policies of CrossQ."""

    policy_aliases = CrossQ.policy_aliases


class CloningDQN(BehaviorCloning):
    """Behaviour cloning for the policies of DQN: cross entropy, with its values as logits."""

    policy_aliases = DQN.policy_aliases

    def loss(self, observations: Any, actions: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a batch, as for `BehaviorCloning`."""
        policy: Any = self.policy
        error = torch.nn.functional.cross_entropy(policy.q_net(observations), actions.long())
        return error + self._l2(), {"cross_entropy": error.item()}
