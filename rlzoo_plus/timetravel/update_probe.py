"""`UpdateProbe`: measures each update of an agent, and ends training where a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.timetravel.condition import Condition
from rlzoo_plus.training.callbacks.outputs import NumberWriter
from rlzoo_plus.training.resume.log_rows import TIMING

_ROLLOUT = ("observations", "actions", "rewards", "values", "log_probs", "advantages", "returns")
# Logged values by step and metric, None for NaN; a step can have several rows.
Rows = Mapping[tuple[int, str], list[float | None]]


class FoundIt(StopTraining):
    """The condition holds."""


@dataclass
class Range:
    """The range of an array of a batch."""

    low: float = np.inf
    high: float = -np.inf
    not_finite: int = 0  # numbers that are NaN or infinite
    count: int = 0

    def add(self, values: Any) -> None:
        """Extend it by an array or a tensor."""
        array = np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)
        good = array[np.isfinite(array)]
        self.count += array.size
        self.not_finite += array.size - good.size
        if good.size:
            self.low = min(self.low, float(good.min()))
            self.high = max(self.high, float(good.max()))


@dataclass
class Gradient:
    """The gradients of one parameter in the gradient steps of an update, after clipping."""

    largest_norm: float = 0.0
    not_finite_at: int | None = None  # the first gradient step, from 1

    def add(self, gradient: torch.Tensor, step: int) -> None:
        """Extend it by a gradient step."""
        norm = float(gradient.norm())
        if np.isfinite(norm):
            self.largest_norm = max(self.largest_norm, norm)
        elif self.not_finite_at is None:
            self.not_finite_at = step


@dataclass
class Weight:
    """A parameter after an update."""

    norm: float
    largest_change: float  # of an entry, in the update
    not_finite: int  # entries


@dataclass
class Update:
    """One call of an algorithm's `train`: its batch, losses, gradients and weights."""

    iteration: int  # of the run, from 1
    step: int  # environment steps taken before it
    gradient_steps: int = 0
    batch: dict[str, Range] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)  # logged: losses, clip fraction, ...
    learning_rates: dict[str, float] = field(default_factory=dict)  # by optimizer
    gradients: dict[str, Gradient] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    raised: str | None = None  # the error that ended it

    @property
    def is_lost(self) -> bool:
        """Whether a weight or a gradient is not finite."""
        gradients = any(g.not_finite_at is not None for g in self.gradients.values())
        return gradients or any(weight.not_finite for weight in self.weights.values())


class UpdateProbe:
    """Watches an agent learn; it draws no random number and changes nothing.

    Attributes:
        updates: The last two updates.
        count: Updates begun.
        held_in: Where the condition holds: `update`, or `log` for a row of it; else empty.
        held: The values that were looked at then.
        compared: Logged values that were the same as those of the run.
    """

    def __init__(self, condition: Condition, after: int, limit: int | None, rows: Rows) -> None:
        """Initialize.

        Args:
            condition: What ends the training.
            after: Environment steps before which it does not count.
            limit: Environment steps after which nobody looks any further; None for the end.
            rows: The log of the run that is replayed, to see that the replay is the same.
        """
        self.condition, self.after, self.limit, self.rows = condition, after, limit, rows
        self.updates: list[Update] = []
        self.count, self.held_in = 0, ""
        self.held: dict[str, float] = {}
        self.running: Update | None = None
        self.compared = 0

    def attach(self, agent: Any) -> None:
        """Watch a freshly built agent.

        Raises:
            ConfigError: It does not update by gradients of PyTorch.
        """
        names = agent._get_torch_save_params()
        found = {name: attrgetter(name)(agent) for name in names[0] if "optimizer" in name}
        is_known = all(isinstance(one, torch.optim.Optimizer) for one in found.values())
        if not found or not is_known or not hasattr(agent, "train"):
            raise ConfigError(
                f"{type(agent).__name__}: bisect looks at gradients of PyTorch, and this algorithm "
                "has none. Choose a run of another algorithm."
            )
        self._agent, self._optimizers = agent, found
        self._parameters = dict(agent.policy.named_parameters())
        self._parameters |= {name: attrgetter(name)(agent) for name in names[1]}
        self._names = {id(tensor): name for name, tensor in self._parameters.items()}
        for name, optimizer in found.items():
            optimizer.register_step_pre_hook(partial(self._on_gradients, name))
        agent.logger.output_formats.append(NumberWriter(self.on_row))
        agent.train = partial(self._train, agent.train)
        buffer = getattr(agent, "replay_buffer", None)
        if buffer is not None:
            buffer.sample = partial(self._sample, buffer.sample)

    def on_row(self, values: Mapping[str, float], step: int) -> None:
        """Compare a row of the log with the run's, and look whether the condition holds.

        Raises:
            FoundIt: It holds.
            ConfigError: The row differs: this is not the run.
        """
        for key, value in values.items():
            there = self.rows.get((step, key))
            if there is None or TIMING.search(key):
                continue
            self.compared += 1
            if (value if np.isfinite(value) else None) not in there:
                raise ConfigError(
                    f"the replay differs from the run: {printable(key)} at step {step:,} was "
                    f"{there[-1]}, is {value}. Code, libraries or machine are not the same, or "
                    "something in the run is not reproducible: `rlzoo-plus verify-resume RUN`."
                )
        # What an update logs was looked at after it.
        if step >= self.after and not self.condition.is_of_update and self.condition.holds(values):
            self._end("log", values)

    def _train(self, train: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        agent = self._agent
        update = Update(int(agent.iterations), int(agent.num_timesteps))
        self.running, self.updates = update, [*self.updates[-1:], update]
        self.count += 1
        rollout = getattr(agent, "rollout_buffer", None)
        for name in _ROLLOUT if rollout is not None else ():
            for key, part in _parts(name, getattr(rollout, name, None)):
                update.batch.setdefault(key, Range()).add(part)
        before = {name: tensor.detach().clone() for name, tensor in self._parameters.items()}
        try:
            train(*args, **kwargs)
        except Exception as error:
            update.raised = f"{type(error).__name__}: {printable(error)}"
            raise
        finally:
            self._measure(update, before)
        self.running = None
        counts = update.step >= self.after
        if counts and (self.condition.holds(update.values) or (
            self.condition.is_nan and update.is_lost
        )):  # fmt: skip
            self._end("update", update.values)
        if self.limit is not None and update.step >= self.limit:
            raise StopTraining("the end of the part to be replayed", interrupted=True)

    def _end(self, where: str, values: Mapping[str, float]) -> None:
        self.held_in, self.held = where, dict(values)
        raise FoundIt("the condition holds", interrupted=True)

    def _measure(self, update: Update, before: Mapping[str, torch.Tensor]) -> None:
        logged = self._agent.logger.name_to_value
        update.values = {
            name: float(value) for name, value in sorted(logged.items()) if _is_number(value)
        }
        update.learning_rates = {
            name: float(one.param_groups[0]["lr"]) for name, one in self._optimizers.items()
        }
        for name, tensor in self._parameters.items():
            now, old = tensor.detach(), before[name]
            lost = int((~torch.isfinite(now)).sum())
            change = float((now - old).abs().max()) if now.numel() else 0.0
            update.weights[name] = Weight(float(now.float().norm()), change, lost)

    def _on_gradients(self, name: str, optimizer: Any, *_: Any) -> None:
        update = self.running
        if update is None:
            return
        update.gradient_steps += name == next(iter(self._optimizers))
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    known = self._names.get(id(parameter), f"{name}, another parameter")
                    found = update.gradients.setdefault(known, Gradient())
                    found.add(parameter.grad.detach(), max(update.gradient_steps, 1))

    def _sample(self, sample: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        drawn = sample(*args, **kwargs)
        if self.running is not None:
            for name in getattr(drawn, "_fields", ()):
                for key, part in _parts(name, getattr(drawn, name)):
                    self.running.batch.setdefault(key, Range()).add(part)
        return drawn


def _parts(name: str, values: Any) -> Iterator[tuple[str, Any]]:
    """Yield an array, or those of a dictionary, with their names; nothing for anything else."""
    if isinstance(values, Mapping):
        for key, part in values.items():
            yield f"{name}[{key}]", part
    elif isinstance(values, (np.ndarray, torch.Tensor)):
        yield name, values


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
