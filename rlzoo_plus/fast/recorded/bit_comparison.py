"""Everything that an update of an agent changes: copied, put back, and compared bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor


class State:
    """A copy of everything that an update changes."""

    def __init__(self, agent: Any) -> None:
        self._agent = agent
        self._tensors = {name: t.detach().clone() for name, t in learned_tensors(agent).items()}
        # Of a parameter that no optimizer has, they add up.
        self._gradients = {name: _copied(t.grad) for name, t in learned_tensors(agent).items()}
        self._averages = {
            name: [
                {key: _copied(value) for key, value in optimizer.state.get(p, {}).items()}
                for group in optimizer.param_groups
                for p in group["params"]
            ]
            for name, optimizer in optimizers_of(agent).items()
        }
        self._rates = {
            name: [group["lr"] for group in optimizer.param_groups]
            for name, optimizer in optimizers_of(agent).items()
        }
        self._n_updates = agent._n_updates
        self._logged = dict(agent.logger.name_to_value)
        self._excluded = dict(agent.logger.name_to_excluded)
        self._random = torch.get_rng_state()
        self._numpy = np.random.get_state()

    def restore(self) -> None:
        """Bring the agent back to this state."""
        agent = self._agent
        for name, tensor in learned_tensors(agent).items():
            tensor.data.copy_(self._tensors[name])
            tensor.grad = _copied(self._gradients[name])
        for name, optimizer in optimizers_of(agent).items():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            for parameter, values in zip(parameters, self._averages[name], strict=True):
                optimizer.state.pop(parameter, None)
                if values:
                    optimizer.state[parameter] = {k: _copied(v) for k, v in values.items()}
            for group, rate in zip(optimizer.param_groups, self._rates[name], strict=True):
                group["lr"] = rate
        agent._n_updates = self._n_updates
        for kept, now in (
            (self._logged, agent.logger.name_to_value),
            (self._excluded, agent.logger.name_to_excluded),
        ):
            now.clear()
            now.update(kept)
        torch.set_rng_state(self._random)
        np.random.set_state(self._numpy)

    def difference(self, other: State) -> str:
        """Return the name of what differs in a bit, empty if all is the same."""
        for mine, theirs in zip(self._parts(), other._parts(), strict=True):
            for name in dict.fromkeys([*mine, *theirs]):
                if bits(mine.get(name)) != bits(theirs.get(name)):
                    return str(name)
        return ""

    def _parts(self) -> Iterator[dict[str, Any]]:
        yield self._tensors
        for name, averages in self._averages.items():
            yield {
                f"{name}: {key} of its parameter {number}": value
                for number, values in enumerate(averages)
                for key, value in values.items()
            }
        yield {f"the learning rate of {name}": rate for name, rate in self._rates.items()}
        yield self._logged
        yield {"the order of logged values": list(self._logged)}
        yield self._excluded
        yield {
            "the number of updates": self._n_updates,
            "torch's generator of random numbers": self._random,
            "NumPy's generator of random numbers": [part for part in self._numpy],
        }


def optimizers_of(agent: Any) -> dict[str, torch.optim.Optimizer]:
    """Return the optimizers of an agent by name."""
    names = [name for name in agent._get_torch_save_params()[0] if name != "policy"]
    return {name: attrgetter(name)(agent) for name in names}


def learned_tensors(agent: Any) -> dict[str, Tensor]:
    """Return everything that an update reads or changes: parameters, buffers, coefficients."""
    names = agent._get_torch_save_params()[1]
    return {
        **dict(agent.policy.named_parameters()),
        **dict(agent.policy.named_buffers()),
        **{name: attrgetter(name)(agent) for name in names},
    }


def bits(value: Any) -> Any:
    """Return what is equal for equal bits: NaN equals itself, and 0.0 is not -0.0."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.tobytes()
    return type(value), repr(value)


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value
