"""The callbacks that a configuration can name: what networks hold, terms of the reward, videos.

They read and draw no random number: a run with them trains as without.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.analysis.find_run import Place, read_config
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.envs.monitor import is_number, mean_of_episodes
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.evaluation import one_torch_thread
from rlzoo_plus.training.media import record_video

log = logging.getLogger(__name__)
# Values are of as many of the newest transitions, and terms of the reward of as many episodes.
_NEWEST, _EPISODES_KEPT = 256, 100


class _Regularly(BaseCallback):
    """Acts at the first iteration after every `every_steps` environment steps."""

    def __init__(self, every_steps: int, first: int) -> None:
        super().__init__()
        self.every_steps, self._next = every_steps, first

    def _is_due(self) -> bool:
        step = self.model.num_timesteps
        if step < self._next:
            return False
        self._next = (step // self.every_steps + 1) * self.every_steps
        return True

    def _on_step(self) -> bool:
        return True


class _Values(_Regularly):
    """Writes values every so many environment steps."""

    def __init__(self, every_steps: int = 1_000) -> None:
        if not isinstance(every_steps, int) or every_steps < 1:
            raise ConfigError(f"every_steps={every_steps!r}: must be a whole number of at least 1.")
        super().__init__(every_steps, first=every_steps)

    def values(self) -> dict[str, Any]:
        """Return what is written, by name."""
        raise NotImplementedError

    def _on_rollout_end(self) -> None:
        if not self._is_due():
            return
        with torch.no_grad():
            values = self.values()
        # Tables on the terminal have no room for tensors.
        hidden = {name: ("stdout",) * isinstance(v, Tensor) for name, v in values.items()}
        for output in self.logger.output_formats:
            output.write(values, hidden, self.model.num_timesteps)


class Histograms(_Values):
    """Callback that writes histograms of weights and of the newest actions to TensorBoard."""

    def __init__(self, every_steps: int = 10_000) -> None:
        super().__init__(every_steps)

    def values(self) -> dict[str, Any]:
        """Return the tensors, whose histograms TensorBoard draws."""
        named = self.model.policy.named_parameters()
        values = {f"weights/{name}": tensor.detach().cpu().clone() for name, tensor in named}
        actions = self.locals.get("actions")
        if isinstance(actions, (np.ndarray, Tensor)):
            values["actions"] = torch.as_tensor(actions).detach().cpu().clone().float()
        return values


class Gradients(_Values):
    """Callback that writes the norm of the last update's gradient, for each part of the policy.

    Recorded and plain updates leave the clipped gradient of their last minibatch.
    """

    def values(self) -> dict[str, Any]:
        """Return the norms; nothing before the first update."""
        squares: dict[str, float] = {}
        for name, parameter in self.model.policy.named_parameters():
            if parameter.grad is not None:
                part = ".".join(name.split(".")[:2]) if "." in name else name
                square = float(parameter.grad.detach().double().square().sum())
                squares[part] = squares.get(part, 0.0) + square
        norms = {f"gradients/{part}": square**0.5 for part, square in squares.items()}
        return norms | ({"gradients/all": sum(squares.values()) ** 0.5} if squares else {})


class QValues(_Values):
    """Callback that writes mean and standard deviation of what the critic says.

    Off-policy, of the newest 256 transitions in the replay buffer, the smallest of the critics or
    the mean of quantiles; on-policy, of the rollout's state values.
    """

    def values(self) -> dict[str, Any]:
        """Return both numbers; nothing while there are no transitions."""
        model: Any = self.model
        if hasattr(model, "rollout_buffer"):
            return _moments("train/value", model.rollout_buffer.values)
        buffer: Any = getattr(model, "replay_buffer", None)
        size = 0 if buffer is None else buffer.size()
        if not size:
            return {}
        newest = (buffer.pos - 1 - np.arange(min(size, _NEWEST))) % buffer.buffer_size
        observations = _rows(buffer.observations, newest)
        normalize = model.get_vec_normalize_env()
        if normalize is not None:
            observations = normalize.normalize_obs(observations)
        tensors, _ = model.policy.obs_to_tensor(observations)
        actions = torch.as_tensor(buffer.actions[newest, 0], device=model.device)
        return _moments("train/q", _action_values(model, tensors, actions).cpu().numpy())


def _rows(stored: Any, places: np.ndarray) -> Any:
    """Return the transitions at these places, of the first environment."""
    if isinstance(stored, dict):
        return {name: array[places, 0] for name, array in stored.items()}
    return stored[places, 0]


def _action_values(model: Any, observations: Any, actions: Tensor) -> Any:
    if hasattr(model, "critic"):
        found = model.critic(observations, actions)
        # Several critics, or quantiles of shape (batch, critics, quantiles).
        if isinstance(found, (tuple, list)):
            return torch.cat(list(found), dim=1).min(dim=1).values
        return found.mean(dim=tuple(range(1, found.dim())))
    network = getattr(model, "quantile_net", None) or model.q_net
    found = network(observations)
    if found.dim() == 3:  # (batch, quantiles, actions)
        found = found.mean(dim=1)
    return found.gather(1, actions.long().reshape(-1, 1))


def _moments(name: str, values: np.ndarray) -> dict[str, Any]:
    return {f"{name}_mean": float(np.mean(values)), f"{name}_std": float(np.std(values))}


class RewardTerms(BaseCallback):
    """Callback that logs the terms of the reward, as means over the last hundred episodes.

    Gymnasium's MuJoCo environments put them into the info of each step, `reward_forward` and so on.
    This project's robots need no callback: their terms are always logged.
    """

    def __init__(self, prefix: str = "reward_") -> None:
        """Create a callback.

        Args:
            prefix: How the keys of the terms begin; the rest is their name in the log.
        """
        super().__init__()
        self.prefix = prefix
        self._running: list[dict[str, float]] = []
        self._episodes: deque[dict[str, float]] = deque(maxlen=_EPISODES_KEPT)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {"running": self._running, "episodes": list(self._episodes)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the sums."""
        self._running = [dict(terms) for terms in state["running"]]
        self._episodes = deque(state["episodes"], maxlen=_EPISODES_KEPT)

    def _on_training_start(self) -> None:
        if len(self._running) != self.training_env.num_envs:
            self._running = [{} for _ in range(self.training_env.num_envs)]

    def _on_step(self) -> bool:
        ended = zip(self._running, self.locals["infos"], self.locals["dones"], strict=True)
        for rank, (terms, info, is_over) in enumerate(ended):
            for key, value in info.items():
                if key.startswith(self.prefix) and is_number(value):
                    name = f"reward/{key.removeprefix(self.prefix)}"
                    terms[name] = terms.get(name, 0.0) + float(value)
            if is_over:
                self._episodes.append(terms)
                self._running[rank] = {}
        if any(self.locals["dones"]):
            for name, value in mean_of_episodes(self._episodes).items():
                self.logger.record(f"rollout/{name}", value)
        return True


class EpisodeVideo(_Regularly):
    """Callback that records a video of the policy every so many environment steps.

    It is written to `videos/step-<steps>.mp4` in the run directory, in an environment of its own,
    without exploration and always with the same episodes. An error is a warning.
    """

    def __init__(self, every_steps: int = 50_000, seconds: float = 5.0) -> None:
        """Create a callback.

        Args:
            every_steps: Environment steps between two videos; the first is of the start.
            seconds: Their length [s].
        """
        if every_steps < 1 or seconds <= 0:
            raise ConfigError(f"every_steps={every_steps}, seconds={seconds}: must be above 0.")
        super().__init__(every_steps, first=0)
        self.seconds = seconds

    def _on_rollout_start(self) -> None:
        if not self._is_due():
            return
        step, run_dir = self.model.num_timesteps, RunDir(Path(str(self.logger.dir)))
        out = run_dir.videos / f"step-{step:09d}.mp4"
        try:
            config = read_config(Place(run_dir.path))
            policy = Policy.of_agent(self.model)
            policy.about["step"] = step
            with generators_kept(), one_torch_thread():
                record_video(config, [(config.algo.name, policy)], out, seconds=self.seconds)
        # A renderer can fail in any way; the training must not.
        except Exception as error:
            log.warning("no %s: %s", out.name, error)
