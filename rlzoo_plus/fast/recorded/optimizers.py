"""Steps of torch's optimizers on one flat tensor, and without; the same bits, fewer calls.

The parameters, their gradients and the optimizer's averages become views of flat tensors. An
optimizer's own state is what it would be: `state_dict`, checkpoints and exports see the same. The
calls of a step can be part of a recording: what changes from step to step is given as numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from stable_baselines3.common.sb2_compat.rmsprop_tf_like import RMSpropTFLike
from torch import Tensor

# torch.float32 counts no further.
_MOST_STEPS = 2**24
# 64 bytes: matrix products may round by the alignment of their arguments.
_ALIGNMENT = 16
# With one thread, steps on so many numbers are made by halves: the norm that `fast=true` clips to
# depends on it in its last bits.
_MANY = 2**15
# Kernels take two vectors of 64 bytes at a time.
_VECTORS = 32
_OFF = ("amsgrad", "maximize", "capturable", "differentiable", "fused", "centered", "momentum")


class PlainSteps:
    """Lets an optimizer make its steps itself.

    Attributes:
        numbers: Names of the numbers that it needs, see `next_numbers`.
        changed: The tensors that it changes.
    """

    numbers: tuple[str, ...] = ()
    changed: Sequence[Tensor] = ()

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> None:
        self.optimizer, self.parameters = optimizer, list(parameters)

    def begin(self) -> None:
        """Take over what the optimizer has."""

    def next_numbers(self, max_norm: float | None = None) -> dict[str, Any]:
        """Return what is different at each recorded step, by name."""
        return {}

    def step(self, gradients: Sequence[Tensor], max_norm: float | None = None) -> None:
        """Make a step, with gradients clipped to a norm."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            # fast=bfloat16 gives some in 16 bits.
            parameter.grad = gradient.to(parameter.dtype).contiguous()
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)
        self.optimizer.step()

    def publish(self) -> None:
        """Complete the optimizer's own state."""

    def is_current(self) -> bool:
        """Tell whether the optimizer still has the tensors of this object."""
        return True


class FlatSteps(PlainSteps):
    """Makes the steps of an optimizer on flat tensors.

    Attributes:
        flat: The parameters as one tensor, with gaps.
        gradient: Their gradients, alike; `gradients` are views of it.
    """

    averages: tuple[str, ...] = ()
    initial: float = 0.0
    varying: tuple[str, ...] = ("rate",)

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str = ""
    ) -> None:
        super().__init__(optimizer, parameters)
        self._name = name
        self.numbers = tuple(f"{name}_{number}" for number in (*self.varying, "max_norm"))
        self.group = optimizer.param_groups[0]
        self.flat = self._flatten([parameter.data for parameter in self.parameters])
        if len(self.parameters) > 1:
            for parameter, view in zip(self.parameters, self._views(self.flat), strict=True):
                parameter.data = view
        self.gradient, self.scratch = torch.zeros_like(self.flat), torch.zeros_like(self.flat)
        self.gradients = self._views(self.gradient)
        stepped = {*map(id, self.parameters)}
        self._idle = [p for p in self.group["params"] if id(p) not in stepped]
        self._norms = torch.zeros(len(self.parameters))
        self._each_norm = list(self._norms.unbind())
        self.moments: list[Tensor] = []
        self._pieces: list[tuple[Tensor, ...]] = []
        self.steps = 0
        # What the optimizer's own state has for each parameter, if these are tensors.
        self._counts: Tensor | None = None
        self._own: list[Any] = []
        self._fixed: dict[str, Any] = {}

    def begin(self) -> None:
        """Take over the optimizer's averages; it makes them at its first step."""
        if self.moments:
            return
        states = [self.optimizer.state[parameter] for parameter in self.parameters]
        for parameter, state in zip(self.parameters, states, strict=True):
            if not state:
                state["step"] = self._no_step()
                for name in self.averages:
                    state[name] = torch.full_like(parameter.data, self.initial)
        for name in self.averages:
            flat = self._flatten([state[name] for state in states])
            for state, view in zip(states, self._views(flat), strict=True):
                state[name] = view
            self.moments.append(flat)
        self.steps = int(states[0]["step"])
        if isinstance(states[0]["step"], Tensor):
            self._counts = torch.full((len(states),), float(self.steps))
            for state, count in zip(states, self._counts.unbind(), strict=True):
                state["step"] = count
        self._own, self._fixed = self._tensors(), self._values()
        whole = self.flat, self.gradient, self.scratch, *self.moments
        self._pieces = list(zip(*map(_halves, whole), strict=True))
        self.changed = [
            *whole,
            *(tensor for piece in self._pieces for tensor in piece),
            *(*self.gradients, self._norms, *self._each_norm),
        ]

    def _values(self) -> dict[str, Any]:
        """Return what is the same at each step."""
        return {name: v for name, v in self.group.items() if name not in ("params", "lr")}

    def _no_step(self) -> Any:
        return torch.tensor(0.0)

    def _tensors(self) -> list[Any]:
        state = self.optimizer.state
        return [state[p].get(name) for p in self.parameters for name in self.averages]

    def is_current(self) -> bool:
        """Tell whether the optimizer still has the tensors of this object."""
        groups = self.optimizer.param_groups
        if len(groups) != 1 or groups[0] is not self.group:
            return False
        if self._own and self._fixed != self._values():
            return False
        if self._own and _counts(self.optimizer, self.parameters) != {self.steps}:
            return False
        now = self._tensors() if self._own else []
        return all(a is b for a, b in zip(now, self._own, strict=True))

    def _flatten(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return one tensor with room for all and their numbers; a single one as it is."""
        if len(tensors) == 1 and tensors[0].is_contiguous():
            return tensors[0].view(-1)
        flat = torch.zeros(sum(_room(tensor) for tensor in tensors))
        for view, tensor in zip(self._views(flat), tensors, strict=True):
            view.copy_(tensor)
        return flat

    def _views(self, flat: Tensor) -> list[Tensor]:
        views, start = [], 0
        for parameter in self.parameters:
            views.append(flat[start : start + parameter.numel()].view(parameter.shape))
            start += _room(parameter)
        return views

    def flat_copy(self, tensors: Sequence[Tensor]) -> Tensor:
        """Make other tensors of these shapes views of one flat tensor, which is returned."""
        flat = self._flatten([tensor.data for tensor in tensors])
        if len(tensors) > 1:
            for tensor, view in zip(tensors, self._views(flat), strict=True):
                tensor.data = view
        return flat

    def step(self, gradients: Sequence[Tensor], max_norm: float | None = None) -> None:
        """Make a step, with gradients clipped to a norm."""
        self.begin()
        numbers = SimpleNamespace(**self.next_numbers(max_norm))
        self.apply(gradients, numbers, clips=max_norm is not None)

    def next_numbers(self, max_norm: float | None = None) -> dict[str, Any]:
        """Count a step and return what is different at each, by name."""
        self.steps += self.steps < _MOST_STEPS
        return dict(zip(self.numbers, (*self._next(), max_norm), strict=True))

    def apply(
        self, gradients: Sequence[Tensor], numbers: SimpleNamespace, *, clips: bool = False
    ) -> None:
        """Make a step with these numbers; `begin` was called before."""
        for view, gradient in zip(self.gradients, gradients, strict=True):
            view.copy_(gradient)
        *varying, max_norm = (getattr(numbers, name) for name in self.numbers)
        scale = None
        if clips:
            for gradient, norm in zip(self.gradients, self._each_norm, strict=True):
                torch.linalg.vector_norm(gradient, out=norm)
            scale = torch.clamp(max_norm / (torch.linalg.vector_norm(self._norms) + 1e-6), max=1.0)
        decay = 0.0 if self.group.get("decoupled_weight_decay") else self.group["weight_decay"]
        for flat, gradient, *others in self._pieces:
            if scale is not None:
                gradient.mul_(scale)
            if decay:
                gradient = gradient.add(flat, alpha=decay)
            self._apply(flat, gradient, *others, *varying)

    def _next(self) -> Sequence[float]:
        """Return the numbers named in `varying`."""
        return [-float(self.group["lr"])]

    def _apply(self, flat: Tensor, gradient: Tensor, scratch: Tensor, *others: Any) -> None:
        """Make a step of a part of the parameters.

        Args:
            flat: The parameters.
            gradient: Their gradients.
            scratch: Memory of the same shape.
            *others: The averages, then the numbers named in `varying`.
        """
        raise NotImplementedError

    def publish(self) -> None:
        """Complete the optimizer's own state, and each parameter's gradient."""
        if not self.moments:
            return
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        for parameter in self._idle:
            parameter.grad = None
        self._publish_count()

    def _publish_count(self) -> None:
        if self._counts is not None:
            self._counts.fill_(self.steps)
            return
        for parameter in self.parameters:
            self.optimizer.state[parameter]["step"] = self.steps


class _Adam(FlatSteps):
    averages = ("exp_avg", "exp_avg_sq")
    varying = ("rate", "width", "decay")

    def _next(self) -> Sequence[float]:
        rate, (beta1, beta2), steps = self.group["lr"], self.group["betas"], float(self.steps)
        corrected = -(rate / (1 - beta1**steps))
        return corrected, (1 - beta2**steps) ** 0.5, 1 - rate * self.group["weight_decay"]

    def _apply(self, flat: Tensor, gradient: Tensor, scratch: Tensor, *others: Any) -> None:
        mean, square, rate, correction, decay = others
        group = self.group
        beta1, beta2 = group["betas"]
        if group["weight_decay"] and group.get("decoupled_weight_decay"):
            flat.mul_(decay)
        mean.lerp_(gradient, 1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        width = torch.sqrt(square, out=scratch)
        width.div_(correction).add_(group["eps"])
        flat.addcdiv_(mean, width, value=rate)


class _RMSprop(FlatSteps):
    averages = ("square_avg",)

    def _apply(self, flat: Tensor, gradient: Tensor, scratch: Tensor, *others: Any) -> None:
        square, rate = others
        alpha = self.group["alpha"]
        square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        width = torch.sqrt(square, out=scratch).add_(self.group["eps"])
        flat.addcdiv_(gradient, width, value=rate)


class _RMSpropTF(FlatSteps):
    averages = ("square_avg",)
    initial = 1.0

    def _no_step(self) -> Any:
        return 0

    def _apply(self, flat: Tensor, gradient: Tensor, scratch: Tensor, *others: Any) -> None:
        square, rate = others
        alpha = self.group["alpha"]
        square.mul_(alpha).addcmul_(gradient, gradient, value=1 - alpha)
        width = torch.add(square, self.group["eps"], out=scratch).sqrt_()
        flat.addcdiv_(gradient, width, value=rate)


_FLAT: dict[type, type[FlatSteps]] = {
    torch.optim.Adam: _Adam,
    torch.optim.AdamW: _Adam,
    torch.optim.RMSprop: _RMSprop,
    RMSpropTFLike: _RMSpropTF,
}


def _halves(flat: Tensor) -> list[Tensor]:
    """Return a tensor, or its halves if it is large and torch has one thread.

    They meet where vector instructions would begin anew: each number is rounded as in the whole.
    """
    if torch.get_num_threads() > 1 or flat.numel() < _MANY:
        return [flat]
    middle = flat.numel() // 2 // _VECTORS * _VECTORS
    return [flat[:middle], flat[middle:]]


def _room(tensor: Tensor) -> int:
    return -(-tensor.numel() // _ALIGNMENT) * _ALIGNMENT


def make_steps(
    optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], name: str = ""
) -> PlainSteps:
    """Return what makes an optimizer's steps: on flat tensors if their bits are the same.

    Args:
        optimizer: The optimizer.
        parameters: Those that it changes.
        name: Tells its numbers from those of others.
    """
    group = optimizer.param_groups[0]
    kind = _FLAT.get(type(optimizer))
    fits = (
        kind is not None
        and len(optimizer.param_groups) == 1
        and not any(group.get(name) for name in _OFF)
        and not group.get("foreach")
        and type(group["lr"]) is float
        and (type(optimizer) is not torch.optim.AdamW or "decoupled_weight_decay" in group)
        and not (optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
        and "step" not in vars(optimizer)
        and all(p.dtype == torch.float32 and p.is_contiguous() for p in parameters)
        and len(_counts(optimizer, parameters)) < 2
    )
    return kind(optimizer, parameters, name) if fits and kind else PlainSteps(optimizer, parameters)


def _counts(optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> set[Any]:
    """Return how many steps of parameters an optimizer has counted; None before the first one."""
    states = (optimizer.state.get(parameter) for parameter in parameters)
    return {float(state["step"]) if state else None for state in states}


class Polyak:
    """Moves the weights of a target network towards those of another.

    Attributes:
        changed: The tensors that it changes.
        readable: The tensors that it reads.
    """

    def __init__(
        self, steps: PlainSteps, sources: Sequence[Tensor], targets: Sequence[Tensor]
    ) -> None:
        same = len(sources) == len(steps.parameters) and all(
            a is b for a, b in zip(sources, steps.parameters, strict=True)
        )
        self._sources = [source.data for source in sources]
        self._targets = [target.data for target in targets]
        if same and isinstance(steps, FlatSteps) and len(sources) > 1:
            self._sources, self._targets = [steps.flat], [steps.flat_copy(targets)]
        self.changed, self.readable = self._targets, self._sources

    def apply(self, tau: Any, rest: Any) -> None:
        """Move by a fraction `tau`; `rest` is what is left of one."""
        for target, source in zip(self._targets, self._sources, strict=True):
            target.mul_(rest).add_(source, alpha=tau)
