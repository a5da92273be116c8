"""Random network distillation: a bonus for what is new, beside the reward, with `exploration=rnd`.

One network learns to predict another, random one (Burda et al., "Exploration by Random Network
Distillation", 2018). Its error is large for observations that are unlike those seen before. On
top of the reward, an agent gets this error, divided by the running standard deviation of its
discounted sum, times a weight. Environments, monitors and evaluations know nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, preprocess_obs
from stable_baselines3.common.running_mean_std import RunningMeanStd
from torch import Tensor, nn

from rlzoo_plus.config.exploration import ExplorationConfig
from rlzoo_plus.envs.fit import is_image
from rlzoo_plus.envs.plain_state import fitted, replace_attributes, to_plain
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError

_WIDTH, _OUTPUTS = 128, 64
_LEARNING_RATE, _BATCH = 3e-4, 256
_DISCOUNT = 0.99  # Of the sum whose standard deviation is 1
_CLIP = 5.0  # Of observations, in standard deviations
_SMALLEST = 1e-8


def attach(agent: Any) -> None:
    """Give a new agent its `novelty`; a replay buffer then adds the bonus to what it returns.

    Both are in classes, which no other agent has: what is saved of an agent is without them.

    Raises:
        ConfigError: It observes images.
    """
    images = [key for key, part in parts_of(agent.observation_space).items() if is_image(part)]
    if images:
        raise ConfigError(
            f"exploration=rnd compares rows of numbers, and the environment has image observations "
            f"{' '.join(images)}".rstrip()
            + ". Leave it out, or use an environment without images."
        )
    novelty = Novelty(agent.observation_space, agent.n_envs, agent.device)
    type(agent).novelty = novelty
    buffer = getattr(agent, "replay_buffer", None)
    if buffer is not None:
        buffer.__class__ = _with_bonus(type(buffer), novelty)


def _with_bonus(kind: Any, novelty: Novelty) -> type:
    """Return a subclass of a replay buffer of Stable-Baselines3 whose rewards have the bonus."""

    class NovelReplayBuffer(kind):  # type: ignore[misc]
        def sample(self, *args: Any, **kwargs: Any) -> Any:
            """Draw a batch, with the bonus as the present networks give it; learn from it."""
            batch = super().sample(*args, **kwargs)
            rows = novelty.rows_of(batch.next_observations)
            bonus = novelty.weight * novelty.scaled(novelty.errors(rows))
            novelty.learn(rows)
            return batch._replace(rewards=batch.rewards + bonus.reshape_as(batch.rewards))

    return NovelReplayBuffer


class Novelty:
    """How new observations are.

    Attributes:
        weight: Of the bonus in the reward, at present.
        loss: Mean error of the newest batch that was learned from; None before the first.
    """

    def __init__(self, space: spaces.Space[Any], n_envs: int, device: Any) -> None:
        """Make both networks, for observations of a space."""
        self.weight = 0.0
        self.loss: float | None = None
        self._space, self._device = space, device
        width = get_flattened_obs_dim(space)
        self._target = _layers(width, _WIDTH, _OUTPUTS).to(device).requires_grad_(False)
        self._predictor = _layers(width, _WIDTH, _WIDTH, _OUTPUTS).to(device)
        self._optimizer = torch.optim.Adam(self._predictor.parameters(), lr=_LEARNING_RATE)
        for parameter in self._predictor.parameters():
            # As Adam itself begins: a checkpoint before the first step has the same entries.
            means = {k: torch.zeros_like(parameter) for k in ("exp_avg", "exp_avg_sq")}
            self._optimizer.state[parameter] = {"step": torch.tensor(0.0), **means}
        self._seen, self._sums = RunningMeanStd(shape=(width,)), RunningMeanStd(shape=(1,))
        self._running = np.zeros(n_envs)

    def rows_of(self, observations: Any) -> Tensor:
        """Return observations, n arrays or tensors or a dictionary of them, as (n, width)."""
        if isinstance(observations, Mapping):
            named = {key: torch.as_tensor(observations[key]) for key in self._keys()}
            read = preprocess_obs(named, self._space, normalize_images=False)
            parts = [*cast("dict[str, Tensor]", read).values()]
        else:
            given = torch.as_tensor(observations)
            read = preprocess_obs(given, self._space, normalize_images=False)
            parts = [cast("Tensor", read)]
        return torch.cat([part.flatten(1) for part in parts], dim=1).to(self._device)

    def errors(self, rows: Tensor) -> Tensor:
        """Return the squared error for each row, shape (n,), without a gradient."""
        with torch.no_grad():
            return self._errors(rows)

    def scaled(self, errors: Tensor) -> Tensor:
        """Return errors such that their discounted sum has a standard deviation of about 1."""
        return errors / float(np.sqrt(self._sums.var[0] + _SMALLEST))

    def rate(self, rows: Tensor) -> NDArray[np.float32]:
        """Return the scaled errors of the next steps of all environments; statistics follow.

        Args:
            rows: What each step led to, shape (n_steps * n_envs, width).

        Returns:
            Shape (n_steps, n_envs).
        """
        self._seen.update(rows.cpu().numpy().astype(np.float64))
        errors = self.errors(rows)
        sums = []
        for step in errors.cpu().numpy().reshape(-1, len(self._running)):
            self._running = _DISCOUNT * self._running + step
            sums.append(self._running)
        self._sums.update(np.concatenate(sums)[:, None])
        found: NDArray[np.float32] = self.scaled(errors).cpu().numpy()
        return found.reshape(-1, len(self._running))

    def learn(self, rows: Tensor) -> None:
        """Predict the random network better for a batch of rows."""
        with torch.enable_grad():
            loss = self._errors(rows).mean()
        self._optimizer.zero_grad()
        torch.autograd.backward(loss)
        self._optimizer.step()
        self.loss = float(loss.detach())

    def _errors(self, rows: Tensor) -> Tensor:
        mean, std = self._seen.mean, np.sqrt(self._seen.var + _SMALLEST)
        white = ((rows - rows.new_tensor(mean)) / rows.new_tensor(std)).clamp(-_CLIP, _CLIP)
        gaps: Tensor = self._predictor(white) - self._target(white)
        return gaps.square().mean(dim=1)

    def _keys(self) -> list[str]:
        return list(parts_of(self._space))

    def _tensors(self) -> dict[str, Tensor]:
        parts = {"target": self._target.state_dict(), "predictor": self._predictor.state_dict()}
        parts |= {f"adam.{i}": own for i, own in enumerate(self._optimizer.state.values())}
        return {f"{name}.{key}": own for name, part in parts.items() for key, own in part.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as plain data."""
        own = {"tensors": self._tensors(), "running": self._running, "loss": self.loss}
        plain: dict[str, Any] = to_plain(own | {k: vars(getattr(self, k)) for k in _STATISTICS})
        return plain

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; raise a ValueError, KeyError or TypeError if it does not fit."""
        for name, own in self._tensors().items():
            own.copy_(fitted(own, state["tensors"][name], name))
        for name in _STATISTICS:
            replace_attributes(getattr(self, name), state[name])
        self._running = fitted(self._running, state["running"], "running").copy()
        loss = state["loss"]
        self.loss = None if loss is None else float(loss)


_STATISTICS = ("_seen", "_sums")


class NoveltyCallback(BaseCallback):
    """Adds the bonus to rollouts, keeps statistics for replay, logs, and is in checkpoints."""

    def __init__(self, exploration: ExplorationConfig) -> None:
        """Take the weight of the bonus and its schedule."""
        super().__init__()
        self._exploration = exploration
        self._last: list[tuple[int, int, Any]] = []

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return self._novelty().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore it."""
        self._novelty().load_state_dict(state)

    def _novelty(self) -> Novelty:
        found: Novelty = type(self.model).novelty  # type: ignore[attr-defined]
        return found

    def _on_step(self) -> bool:
        # A step that ends an episode leads to its end, not to the start of the next one.
        for env in np.flatnonzero(self.locals["dones"]).tolist():
            end = self.locals["infos"][env].get("terminal_observation")
            if end is not None:
                self._last.append((self.locals.get("n_steps", 0), env, end))
        if not hasattr(self.model, "replay_buffer"):
            return True
        novelty, last, self._last = self._novelty(), self._last, []
        self._set_weight(novelty)
        rows = novelty.rows_of(_led_to({}, self.locals["new_obs"], last))
        bonus = novelty.weight * novelty.rate(rows)
        self.logger.record_mean("rollout/rnd_bonus", float(bonus.mean()))
        if novelty.loss is not None:
            self.logger.record("train/rnd_loss", novelty.loss)
        return True

    def _on_rollout_end(self) -> None:
        if hasattr(self.model, "replay_buffer"):
            return
        novelty, buffer = self._novelty(), self.locals["rollout_buffer"]
        self._set_weight(novelty)
        last, self._last = self._last, []
        rows = novelty.rows_of(_led_to(buffer.observations, self.locals["new_obs"], last))
        bonus = novelty.weight * novelty.rate(rows)
        buffer.rewards += bonus
        buffer.compute_returns_and_advantage(self.locals["values"], self.locals["dones"])
        for part in torch.split(torch.randperm(len(rows)).to(rows.device), _BATCH):
            novelty.learn(rows[part])
        self.logger.record("rollout/rnd_bonus", float(bonus.mean()))
        self.logger.record("train/rnd_loss", novelty.loss)

    def _set_weight(self, novelty: Novelty) -> None:
        model: Any = self.model
        novelty.weight = self._exploration.value(1.0 - model._current_progress_remaining)
        self.logger.record("rollout/exploration", novelty.weight)


def _led_to(observations: Any, newest: Any, last: list[tuple[int, int, Any]]) -> Any:
    """Return what the steps of a rollout led to, shape (n_steps * n_envs, ...).

    Args:
        observations: Of each step, shape (n_steps, n_envs, ...), or a dictionary of such; empty
            for one step.
        newest: After the last step, shape (n_envs, ...); of a next episode where one has ended.
        last: Step, environment and last observation of each episode that has ended.
    """
    if isinstance(newest, Mapping):
        return {
            key: _led_to(
                observations[key] if observations else {},
                newest[key],
                [(step, env, whole[key]) for step, env, whole in last],
            )
            for key in newest
        }
    rows = np.asarray(newest)[None]
    if len(observations):
        rows = np.concatenate([observations[1:], rows.reshape(1, *observations.shape[1:])])
    elif last:
        rows = rows.copy()
    for step, env, end in last:
        rows[step, env] = end
    return rows.reshape(-1, *rows.shape[2:])


def _layers(*widths: int) -> nn.Sequential:
    """Return a network with layers of these widths."""
    layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])
