"""What the wrappers of a run do to observations and actions, as parts of a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers import (
    ClipAction,
    ClipReward,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RescaleAction,
    StickyAction,
    TimeLimit,
)
from torch import Tensor, nn

from rlzoo_plus.envs.episodes import (
    EpisodeLimit,
    RecordedEpisodes,
    ReproducibleResets,
    WarmupResets,
    layers_of,
)
from rlzoo_plus.envs.wrappers import (
    DelayedAction,
    DelayedReward,
    FrameSkip,
    History,
    MaskObservation,
    MaskVelocity,
    NoisyAction,
    NoisyObservation,
    PlainSpaces,
    SmoothAction,
    TruncateOnSuccess,
)
from rlzoo_plus.errors import ConfigError

# They end episodes, change rewards, or stand for what a robot does by itself: noise and delay.
_PASSED = {
    *(TimeLimit, OrderEnforcing, PassiveEnvChecker, RecordEpisodeStatistics),
    *(EpisodeLimit, RecordedEpisodes, ReproducibleResets, WarmupResets),
    *(ClipReward, DelayedReward, TruncateOnSuccess),
    *(NoisyAction, NoisyObservation, DelayedAction, StickyAction, FrameSkip),
}
Tensors = Mapping[str, Tensor]


class Layer(nn.Module):
    """One wrapper: what it shows of an observation, and what it makes of an action.

    Attributes:
        starts: What it remembers, at the start of an episode, by name.
        changes_actions: Whether actions pass it changed.
    """

    changes_actions = False

    def __init__(self) -> None:
        super().__init__()
        self.starts: dict[str, np.ndarray] = {}

    def see(self, value: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        """Return what it shows, shape (1, n), and what it remembers then."""
        del memory
        return value, {}

    def act(self, action: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the action that it passes on, and what it remembers then."""
        del memory
        return action, {}

    def undo(self, shown: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return an observation and a memory for which it shows this; shape (n,)."""
        return shown, {}


class _Hide(Layer):
    kept: Tensor

    def __init__(self, wrapper: MaskObservation) -> None:
        super().__init__()
        ones = np.ones(wrapper.observation_space.shape or (), np.float32)
        self.register_buffer("kept", torch.as_tensor(wrapper.observation(ones) > 0))

    def see(self, value: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.where(self.kept, value, torch.zeros_like(value)), {}


class _Clip(Layer):
    low: Tensor
    high: Tensor
    changes_actions = True

    def __init__(self, wrapper: gym.Wrapper) -> None:
        super().__init__()
        space: Any = wrapper.env.action_space
        self.register_buffer("low", torch.as_tensor(space.low, dtype=torch.float32))
        self.register_buffer("high", torch.as_tensor(space.high, dtype=torch.float32))

    def act(self, action: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        return torch.minimum(torch.maximum(action, self.low), self.high), {}


class _Rescale(Layer):
    factor: Tensor
    offset: Tensor
    changes_actions = True

    def __init__(self, wrapper: gym.Wrapper) -> None:
        super().__init__()
        boxes: Any = (wrapper.env.action_space, wrapper.action_space)
        (low, high), (outer_low, outer_high) = (
            (box.low.astype(np.float64), box.high.astype(np.float64)) for box in boxes
        )
        factor = (high - low) / (outer_high - outer_low)
        offset = low - outer_low * factor
        if not np.isfinite([factor, offset]).all():
            raise ConfigError(
                "RescaleAction of an action without bounds cannot be in a graph. Train without it."
            )
        self.register_buffer("factor", torch.as_tensor(factor))
        self.register_buffer("offset", torch.as_tensor(offset))

    def act(self, action: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        return (action.double() * self.factor + self.offset).float(), {}


class _Smooth(Layer):
    changes_actions = True

    def __init__(self, wrapper: SmoothAction, number: int) -> None:
        super().__init__()
        self.name, self.weight = f"smoothed_action_{number}", wrapper.weight
        self.starts[self.name] = np.zeros((1, *(wrapper.action_space.shape or ())), np.float32)

    def act(self, action: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        average = self.weight * memory[self.name] + (1 - self.weight) * action
        return average, {self.name: average}


class _Remember(Layer):
    def __init__(self, wrapper: History, number: int) -> None:
        super().__init__()
        self.seen, self.done = f"seen_{number}", f"done_{number}"
        self.starts = {self.seen: wrapper.empty[0][None], self.done: wrapper.empty[1][None]}

    def see(self, value: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        seen = torch.cat([memory[self.seen][:, 1:], value[:, None]], 1)
        shown = torch.cat([seen.flatten(1), memory[self.done].flatten(1)], 1)
        return shown.to(value.dtype), {self.seen: seen}

    def act(self, action: Tensor, memory: Tensors) -> tuple[Tensor, dict[str, Tensor]]:
        return action, {self.done: torch.cat([memory[self.done][:, 1:], action[:, None]], 1)}

    def undo(self, shown: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        shapes = [self.starts[name].shape for name in (self.seen, self.done)]
        split = int(np.prod(shapes[0]))
        parts = (shown[:split], shown[split:])
        seen, done = (p.reshape(shape) for p, shape in zip(parts, shapes, strict=True))
        return seen[0, -1], {self.seen: np.roll(seen, 1, 1), self.done: done}


@dataclass(frozen=True)
class WrapperChain:
    """The wrappers of an environment, as far as a robot needs them."""

    layers: list[Layer] = field(default_factory=list)  # The innermost first
    skip: int = 1  # Steps of the environment for a decision
    delay: int = 0  # Steps of the environment by which wrappers delay actions


def read_wrappers(env: gym.Env) -> WrapperChain:
    """Return what the wrappers of an environment do.

    Raises:
        ConfigError: A graph cannot hold what one does.
    """
    layers: list[Layer] = []
    skip, delay = 1, 0
    for number, wrapper in enumerate(reversed(layers_of(env))):
        kind = type(wrapper)
        if isinstance(wrapper, FrameSkip):
            skip *= wrapper.skip
        elif isinstance(wrapper, DelayedAction):
            delay += skip * wrapper.delay
        if kind in _PASSED or (kind is PlainSpaces and _changes_nothing(wrapper)):
            continue
        if isinstance(wrapper, MaskObservation) and kind in (MaskObservation, MaskVelocity):
            layers.append(_Hide(wrapper))
        elif isinstance(wrapper, SmoothAction) and kind is SmoothAction:
            layers.append(_Smooth(wrapper, number))
        elif isinstance(wrapper, History) and kind is History:
            layers.append(_Remember(wrapper, number))
        elif kind is ClipAction:
            layers.append(_Clip(wrapper))
        elif kind is RescaleAction:
            layers.append(_Rescale(wrapper))
        else:
            raise ConfigError(
                f"env.wrappers: {kind.__name__} cannot be in the graph of a robot's policy. Train "
                "without it, or do what it does on the robot and use --format onnx."
            )
    return WrapperChain(layers, skip, delay)


def _changes_nothing(wrapper: gym.Wrapper) -> bool:
    inside = wrapper.env
    return (wrapper.observation_space, wrapper.action_space) == (
        inside.observation_space,
        inside.action_space,
    )
