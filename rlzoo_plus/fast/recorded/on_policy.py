"""The updates of PPO and A2C from recordings: the same numbers as their `train` computes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance
from torch import Tensor
from torch.nn import functional as F  # noqa: N812 - as torch writes it

from rlzoo_plus.fast.recorded.bit_comparison import learned_tensors
from rlzoo_plus.fast.recorded.optimizers import FlatSteps, PlainSteps, make_steps
from rlzoo_plus.fast.recorded.parts import Parts
from rlzoo_plus.fast.recorded.recorded_updates import Update
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

_COLUMNS = ("actions", "values", "log_probs", "advantages", "returns")


class OnPolicyUpdate(Update):
    """What PPO and A2C share: one optimizer, and minibatches of a rollout."""

    def __init__(self, agent: Any) -> None:
        super().__init__(agent)
        self._parameters: list[Tensor] = []
        self._observed = Parts(agent.observation_space)

    def loss(self, batch: Sequence[Any], numbers: SimpleNamespace) -> list[Tensor]:
        """Return the loss of a minibatch, and what is logged of it."""
        raise NotImplementedError

    def kind(self, *args: Any, **kwargs: Any) -> Any:
        """Return what decides which calls are made."""
        agent = self.agent
        clips = agent.max_grad_norm is not None
        return agent.normalize_advantage, agent.n_steps * agent.n_envs, clips, *self._structure()

    def _structure(self) -> tuple[Any, ...]:
        return ()

    def _tape(
        self, columns: Sequence[Tensor], rows: Tensor, numbers: Mapping[str, Any]
    ) -> tuple[Tape, PlainSteps]:
        """Return the recording of an update with minibatches of this size, and its steps."""
        size = len(rows)
        if size not in self._tapes:
            if not self.steps:
                self._flatten(self._batch(columns, rows), SimpleNamespace(**numbers))
            steps = self.steps[0]
            steps.begin()
            is_recorded = self._records_steps()
            names = (*numbers, *(steps.numbers if is_recorded else ()))
            changed = steps.changed if is_recorded else ()
            readable = learned_tensors(self.agent).values()
            inputs = [*columns, rows]
            self._tapes[size] = Tape(
                *(self._update, inputs, names, readable, changed), by_onednn=self.by_onednn
            )
        return self._tapes[size], self.steps[0]

    def _batch(self, columns: Sequence[Tensor], rows: Tensor) -> list[Any]:
        """Return rows of a rollout: observations and the other columns."""
        observations, others = self._observed.join([c.index_select(0, rows) for c in columns])
        return [observations, *others]

    def _update(self, inputs: Sequence[Tensor], numbers: SimpleNamespace) -> list[Tensor]:
        """Make a step, and return what is logged; of one that is not recorded, gradients too."""
        *columns, rows = inputs
        gradients, logged = self.gradients(self._batch(columns, rows), numbers)
        steps: Any = self.steps[0]
        if not self._records_steps():
            return [*gradients, *logged]
        with torch.no_grad():
            steps.apply(gradients, numbers, clips=True)
        return logged

    def gradients(
        self, batch: Sequence[Any], numbers: SimpleNamespace
    ) -> tuple[Sequence[Tensor], list[Tensor]]:
        """Return the gradients of a minibatch, and what is logged of it."""
        loss, *logged = self.loss(batch, numbers)
        return torch.autograd.grad(loss, self._parameters), [loss.detach(), *logged]

    def _records_steps(self) -> bool:
        """Return whether steps are a part of the recording: none of them may be left out."""
        return isinstance(self.steps[0], FlatSteps)

    def _minibatch(
        self, columns: Sequence[Tensor], rows: Tensor, numbers: dict[str, Any]
    ) -> Sequence[Tensor]:
        """Make an update with some rows of a rollout, and return what is logged of it."""
        tape, steps = self._tape(columns, rows, numbers)
        max_norm = self.agent.max_grad_norm
        given = [*columns, rows]
        if self._records_steps():
            return tape.run(given, numbers | steps.next_numbers(max_norm))
        results = tape.run(given, numbers)
        count = len(self._parameters)
        gradients, results = results[:count], results[count:]
        if not self._stops(results):
            steps.step(gradients, max_norm)
        return results

    def _stops(self, results: Sequence[Tensor]) -> bool:
        """Return whether a minibatch makes no step, given what is logged of it."""
        return False

    def _flatten(self, batch: Sequence[Any], numbers: SimpleNamespace) -> None:
        """Find the parameters that the loss has a gradient for, and flatten them."""
        policy = self.agent.policy
        learned = {id(p) for group in policy.optimizer.param_groups for p in group["params"]}
        parameters = [p for p in policy.parameters() if p.requires_grad]
        with torch.enable_grad():
            loss = self.loss(batch, numbers)[0]
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        used = zip(parameters, gradients, strict=True)
        self._parameters = [p for p, gradient in used if gradient is not None]
        if not all(id(p) in learned for p in self._parameters):
            raise NotRecordableError("a parameter with a gradient is not in the optimizer")
        self.steps = [make_steps(policy.optimizer, self._parameters)]

    def _rollout(self) -> list[Tensor]:
        """Return the columns of the rollout, flattened as the buffer does it at its first batch."""
        buffer, names = self.agent.rollout_buffer, self._observed.names
        assert buffer.full, "the rollout is not complete"
        if not buffer.generator_ready:
            if names is None:
                buffer.observations = buffer.swap_and_flatten(buffer.observations)
            for name in names or ():
                buffer.observations[name] = buffer.swap_and_flatten(buffer.observations[name])
            for name in _COLUMNS:
                setattr(buffer, name, buffer.swap_and_flatten(getattr(buffer, name)))
            buffer.generator_ready = True
        actions, *rest = (getattr(buffer, name) for name in _COLUMNS)
        columns = self._observed.split(buffer.observations)
        columns += [actions.astype(np.float32, copy=False), *(a.reshape(-1) for a in rest)]
        return [torch.from_numpy(array) for array in columns]

    def _evaluate(self, observations: Any, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, log probabilities and the loss of entropy."""
        if isinstance(self.agent.action_space, spaces.Discrete):
            actions = actions.long().flatten()
        policy = self.agent.policy
        values, log_prob, entropy = policy.evaluate_actions(observations, actions)
        negative = -torch.mean(-log_prob) if entropy is None else -torch.mean(entropy)
        return values.flatten(), log_prob, negative

    def _log(self, *names: str, **values: Any) -> None:
        """Log in the order that the algorithm has."""
        agent = self.agent
        values["n_updates"] = agent._n_updates
        if hasattr(agent.policy, "log_std"):
            values["std"] = torch.exp(agent.policy.log_std).mean().item()
        for name in names:
            if name in values:
                exclude = "tensorboard" if name == "n_updates" else None
                agent.logger.record(f"train/{name}", values[name], exclude=exclude)

    def _explained_variance(self) -> Any:
        buffer = self.agent.rollout_buffer
        return explained_variance(buffer.values.flatten(), buffer.returns.flatten())


class PPOUpdate(OnPolicyUpdate):
    """The update of PPO."""

    @classmethod
    @contextlib.contextmanager
    def first_part(cls, agent: Any) -> Iterator[bool]:
        """Let `train` make the first epoch alone; later ones make the same calls on other rows."""
        n_epochs = agent.n_epochs
        # Any epoch may be the last one if there is a limit.
        is_part = n_epochs > 1 and agent.target_kl is None
        agent.n_epochs = 1 if is_part else n_epochs
        try:
            yield is_part
        finally:
            agent.n_epochs = n_epochs

    def _structure(self) -> tuple[Any, ...]:
        agent = self.agent
        return agent.batch_size, agent.clip_range_vf is None, agent.target_kl is None

    def _records_steps(self) -> bool:
        return self.agent.target_kl is None and super()._records_steps()

    def _stops(self, results: Sequence[Tensor]) -> bool:
        target = self.agent.target_kl
        return target is not None and bool(results[5].numpy() > 1.5 * target)

    def loss(self, batch: Sequence[Any], numbers: SimpleNamespace) -> list[Tensor]:
        """Return the loss of a minibatch, and what is logged of it."""
        observations, actions, old_values, old_log_prob, advantages, returns = batch
        values, log_prob, entropy_loss = self._evaluate(observations, actions)
        if self.agent.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        ratio = torch.exp(log_prob - old_log_prob)
        clipped = advantages * torch.clamp(ratio, numbers.clip_low, numbers.clip_high)
        policy_loss = -torch.min(advantages * ratio, clipped).mean()
        if self.agent.clip_range_vf is not None:
            change = torch.clamp(values - old_values, numbers.clip_vf_low, numbers.clip_vf)
            values = old_values + change
        value_loss = F.mse_loss(returns, values)
        loss = policy_loss + numbers.ent_coef * entropy_loss + numbers.vf_coef * value_loss
        with torch.no_grad():
            clip_fraction = torch.mean((torch.abs(ratio - 1) > numbers.clip).float())
            log_ratio = log_prob - old_log_prob
            kl = torch.mean((torch.exp(log_ratio) - 1) - log_ratio)
        return [loss, policy_loss, value_loss, entropy_loss, clip_fraction, kl]

    def make(self, *args: Any, **kwargs: Any) -> None:
        """Do what PPO's `train` does."""
        agent = self.agent
        agent._update_learning_rate(agent.policy.optimizer)
        progress = agent._current_progress_remaining
        clip = agent.clip_range(progress)
        clip_vf = None if agent.clip_range_vf is None else agent.clip_range_vf(progress)
        numbers = {
            **{"ent_coef": agent.ent_coef, "vf_coef": agent.vf_coef},
            **{"clip": clip, "clip_low": 1 - clip, "clip_high": 1 + clip, "clip_vf": clip_vf},
            "clip_vf_low": None if clip_vf is None else -clip_vf,
        }
        ranges = {"clip_range": clip} | ({} if clip_vf is None else {"clip_range_vf": clip_vf})
        columns = self._rollout()
        logged: list[Sequence[Tensor]] = []
        n_before, goes_on = 0, True
        for _ in range(agent.n_epochs):
            n_before = len(logged)
            order = torch.from_numpy(np.random.permutation(len(columns[0])))
            for rows in order.split(agent.batch_size):  # type: ignore[no-untyped-call]
                logged.append(self._minibatch(columns, rows, numbers))
                if self._stops(logged[-1]):
                    goes_on = False
                    break
            agent._n_updates += 1
            if not goes_on:
                break
        self.steps[0].publish()
        self._log(
            *("entropy_loss", "policy_gradient_loss", "value_loss", "approx_kl", "clip_fraction"),
            *("loss", "explained_variance", "std", "n_updates", "clip_range", "clip_range_vf"),
            **self._means(list(zip(*logged, strict=True)), n_before),
            **{"explained_variance": self._explained_variance()},
            **ranges,
        )

    def _means(self, columns: Sequence[Sequence[Tensor]], n_before: int) -> dict[str, Any]:
        """Return what is logged by name, given each of its numbers for all minibatches."""
        losses, *means = (torch.stack(list(column)).tolist() for column in columns[:5])
        names = ("policy_gradient_loss", "value_loss", "entropy_loss", "clip_fraction")
        found = {name: np.mean(values) for name, values in zip(names, means, strict=True)}
        divergences = torch.stack(list(columns[5][n_before:])).numpy()
        return {**found, "approx_kl": np.mean(divergences), "loss": losses[-1]}


class A2CUpdate(OnPolicyUpdate):
    """The update of A2C."""

    def loss(self, batch: Sequence[Any], numbers: SimpleNamespace) -> list[Tensor]:
        """Return the loss of a rollout, and what is logged of it."""
        observations, actions, _, _, advantages, returns = batch
        values, log_prob, entropy_loss = self._evaluate(observations, actions)
        if self.agent.normalize_advantage:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        policy_loss = -(advantages * log_prob).mean()
        value_loss = F.mse_loss(returns, values)
        loss = policy_loss + numbers.ent_coef * entropy_loss + numbers.vf_coef * value_loss
        return [loss, entropy_loss, policy_loss, value_loss]

    def make(self, *args: Any, **kwargs: Any) -> None:
        """Do what A2C's `train` does."""
        agent = self.agent
        agent._update_learning_rate(agent.policy.optimizer)
        columns = self._rollout()
        rows = torch.from_numpy(np.random.permutation(len(columns[0])))
        numbers = {"ent_coef": agent.ent_coef, "vf_coef": agent.vf_coef}
        results = self._minibatch(columns, rows, numbers)
        self.steps[0].publish()
        explained = self._explained_variance()
        agent._n_updates += 1
        names = ("entropy_loss", "policy_loss", "value_loss")
        values = {n: v.item() for n, v in zip(names, results[-len(names) :], strict=True)}
        order = ("n_updates", "explained_variance", *names, "std")
        self._log(*order, explained_variance=explained, **values)
