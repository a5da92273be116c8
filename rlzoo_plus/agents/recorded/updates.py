"""`RecordsUpdates`: lets an algorithm of Stable-Baselines3 update its networks from recordings.

The first update of each kind is made by the algorithm itself, of several epochs the first one. It
is then repeated from a recording and compared, bit for bit: weights, averages of the optimizers,
counters, logged values and random generators. What differs, or cannot be recorded, is never used.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from abc import ABC
from collections.abc import Callable, Iterator
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from stable_baselines3.common.callbacks import BaseCallback
from torch import Tensor, nn

from rlzoo_plus.agents.recorded.optimizers import PlainSteps
from rlzoo_plus.agents.recorded.tape import NotRecordableError
from rlzoo_plus.agents.recorded.unchanged import Looks, Unchanged

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)
# The class whose `train` is recorded, and what does that.
_ON_POLICY = "rlzoo_plus.agents.recorded.on_policy"
_OFF_POLICY = "rlzoo_plus.agents.recorded.off_policy"
UPDATES = {
    "stable_baselines3.ppo.ppo.PPO": f"{_ON_POLICY}.PPOUpdate",
    "stable_baselines3.a2c.a2c.A2C": f"{_ON_POLICY}.A2CUpdate",
    "stable_baselines3.sac.sac.SAC": f"{_OFF_POLICY}.SACUpdate",
    "stable_baselines3.td3.td3.TD3": f"{_OFF_POLICY}.TD3Update",
    "stable_baselines3.dqn.dqn.DQN": f"{_OFF_POLICY}.DQNUpdate",
    "sb3_contrib.tqc.tqc.TQC": f"{_OFF_POLICY}.TQCUpdate",
}
_BUFFERS = "stable_baselines3.common.buffers."
_KNOWN_BUFFERS = {
    _BUFFERS + name for name in ("RolloutBuffer", "ReplayBuffer", "NStepReplayBuffer")
}
# Their code is read by nobody else, and decides nothing by numbers that tracing would not notice.
_KNOWN_CODE = ("torch", "stable_baselines3", "sb3_contrib", "rlzoo_plus")
# What a callback refers to that is no part of it.
_NOT_ITS_OWN = ("model", "parent")


class Update:
    """The update of one algorithm, from recordings."""

    def __init__(self, agent: BaseAlgorithm) -> None:
        self.agent: Any = agent
        self.steps: list[PlainSteps] = []
        # Called once the part that `first_part` leaves has been made.
        self.compare: Callable[[], None] | None = None

    @classmethod
    def first_part(cls, agent: Any) -> contextlib.AbstractContextManager[bool]:
        """Let an agent's `train` make a first part alone, where the rest makes the same calls.

        The context is whether it does.
        """
        return contextlib.nullcontext(False)

    def kind(self, *args: Any, **kwargs: Any) -> Any:
        """Return what decides which calls an update makes; another one is recorded anew."""
        raise NotImplementedError

    def make(self, *args: Any, **kwargs: Any) -> None:
        """Do what the algorithm's `train` does, with its arguments; the policy is in that mode."""
        raise NotImplementedError

    def is_current(self) -> bool:
        """Tell whether all optimizers still have the tensors of the recording."""
        return all(steps.is_current() for steps in self.steps)


class RecordedUpdates:
    """Updates an agent from recordings wherever that gives the same bits.

    Attributes:
        reason: Why nothing is recorded any more, empty as long as it is.
        n_recorded: Updates made from recordings.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.n_recorded = 0
        self._update: Update | None = None
        self._policy: Unchanged | None = None
        self._looks = Looks()
        self._others: list[Any] = []
        self._checked: set[Any] = set()

    def train(self, agent: Any, plain: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Update an agent.

        Args:
            agent: The agent.
            plain: The algorithm's own `train`.
            *args: For it.
            **kwargs: For it.
        """
        if self.reason:
            plain(*args, **kwargs)
            return
        if self._update is not None and self._is_current(agent):
            kind = self._update.kind(*args, **kwargs)
            if kind in self._checked:
                assert self._policy is not None
                self._policy.set_training(True)
                with torch.no_grad():
                    self._update.make(*args, **kwargs)
                self.n_recorded += 1
                return
        else:
            self._update = None
        self.reason = why_not(agent)
        if self.reason:
            log.info("updates are not recorded: %s", self.reason)
            plain(*args, **kwargs)
            return
        self._check(agent, plain, *args, **kwargs)
        if agent.undisturbed is not None:
            # Weights may have been given another place in memory.
            agent.undisturbed = object()

    def _check(self, agent: Any, plain: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Let the algorithm update itself, then do the same from a recording, and compare.

        Where a first part of an update tells as much as the whole, only that is made twice.
        """
        self._update = None  # its memory is free for the new one
        before = _State(agent)
        update_class = _class_of(UPDATES[owner_of(type(agent), "train")])
        try:
            kind = update_class(agent).kind(*args, **kwargs)
        except NotRecordableError as error:
            self._give_up(str(error))
            plain(*args, **kwargs)
            return
        with update_class.first_part(agent) as is_part:
            plain(*args, **kwargs)
        after = _State(agent)
        before.restore()

        def compare() -> None:
            difference = after.difference(_State(agent))
            if difference:
                raise NotRecordableError(f"{difference} came out otherwise")

        reason = ""
        try:
            update = update_class(agent)
            update.compare = compare if is_part else None
            with torch.no_grad():
                update.make(*args, **kwargs)
            if not is_part:
                compare()
            update.compare = None
        except NotRecordableError as error:
            reason = str(error)
        # Whatever a network of another version of torch can raise: the algorithm goes on itself.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            log.debug("why updates are not recorded:", exc_info=True)
            reason = f"{type(error).__name__}: {error}"
        if reason:
            self._give_up(reason)
            if is_part:
                before.restore()
                plain(*args, **kwargs)
            else:
                after.restore()
            return
        if not self._checked:
            log.info("updates are recorded: the first one came out the same, bit for bit")
        self._keep(agent, update, kind)

    def _give_up(self, reason: str) -> None:
        log.warning("updates are not recorded: %s", reason)
        self.reason, self._update = reason, None

    def _keep(self, agent: Any, update: Update, kind: Any) -> None:
        """Use an update of this kind until what it holds on to is replaced."""
        self._checked.add(kind)
        self._update = update
        self._policy, self._others = Unchanged(agent.policy), _others_of(agent)

    def _is_current(self, agent: Any) -> bool:
        assert self._update is not None
        assert self._policy is not None
        if self._policy.network is agent.policy and not self._looks.due(agent.undisturbed):
            return True
        return (
            self._policy.network is agent.policy
            and self._policy.holds_all()
            and self._others == _others_of(agent)
            and self._update.is_current()
        )


class RecordingMixin:
    """The base of all mixins: in a class with some, it comes after them, before the algorithm.

    Attributes:
        undisturbed: Identifies a training in which only known code has the agent, see `Looks`; None
            in any other, and when none is under way.
    """

    undisturbed: object | None = None

    def learn(self, total_timesteps: int, callback: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Learn."""
        classes = [kind for kind in type(self).__mro__ if kind not in (ABC, object)]
        is_known = all(map(_is_known, classes)) and _are_known(callback)
        self.undisturbed = object() if is_known else None
        try:
            return super().learn(total_timesteps, callback, *args, **kwargs)  # type: ignore[misc]
        finally:
            self.undisturbed = None

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "undisturbed"]  # type: ignore[misc]


class RecordsUpdates(RecordingMixin):
    """Mixin for an algorithm that updates its networks from recordings.

    Attributes:
        recorded: What makes the updates, None to leave them to the algorithm.
    """

    recorded: RecordedUpdates | None = None

    def train(self, *args: Any, **kwargs: Any) -> None:
        """Update the networks."""
        plain = super().train  # type: ignore[misc]
        if self.recorded is None:
            plain(*args, **kwargs)
        else:
            self.recorded.train(self, plain, *args, **kwargs)

    def get_parameters(self) -> dict[str, Any]:
        """Return the parameters; each tensor has memory of its own, as files need it."""
        parameters = super().get_parameters()  # type: ignore[misc]
        if self.recorded is None or not self.recorded.n_recorded:
            return parameters
        return _with_own_memory(parameters)

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "recorded"]  # type: ignore[misc]


def why_not(agent: Any) -> str:
    """Return why an agent's updates cannot be recorded, empty if they may be.

    Code that is not known may decide anew at each update, which a recording would not notice.
    """
    owner = owner_of(type(agent), "train")
    if owner not in UPDATES:
        return f"{owner.rpartition('.')[2]}.train is not one of those that can be"
    if agent.device.type != "cpu":
        return f"they are on the CPU only, and the device is {agent.device}"
    buffer = getattr(agent, "replay_buffer", None) or getattr(agent, "rollout_buffer", None)
    if _name_of(type(buffer)) not in _KNOWN_BUFFERS:
        return f"{type(buffer).__name__} is not one of the buffers that are known"
    for optimizer in _optimizers(agent).values():
        if not _is_known(type(optimizer)):
            return f"{type(optimizer).__name__} is code of yours"
    return own_code_in(agent.policy)


def own_code_in(policy: nn.Module) -> str:
    """Return what in a policy may decide anew at each call, empty if nothing does."""
    for name, module in policy.named_modules():
        shown = name or type(policy).__name__
        if not _is_known(type(module)):
            return f"{type(module).__name__} ({shown}) is code of yours"
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        if any(hooks) or module._backward_pre_hooks or _overridden(module):
            return f"{shown} has hooks or methods of yours"
    if torch.is_autocast_enabled("cpu") or torch.is_anomaly_enabled():
        return "torch computes in another mode"
    return ""


def _overridden(module: nn.Module) -> bool:
    """Return whether an object has a method that its class has otherwise."""
    return any(callable(getattr(type(module), name, None)) for name in vars(module))


def _is_known(code: Any) -> bool:
    return str(getattr(code, "__module__", "")).partition(".")[0] in _KNOWN_CODE


def _are_known(callbacks: Any) -> bool:
    """Return whether callbacks are no code of the user's, nor what they hold and may call."""
    if isinstance(callbacks, (list, tuple)):
        return all(map(_are_known, callbacks))
    if isinstance(callbacks, BaseCallback):
        parts = [part for name, part in vars(callbacks).items() if name not in _NOT_ITS_OWN]
        return _is_known(type(callbacks)) and all(map(_are_known, parts))
    return not callable(callbacks) or _is_known(callbacks)


def owner_of(kind: type, method: str) -> str:
    """Return the class whose method an agent has, below our mixins."""
    below = kind.__mro__[kind.__mro__.index(RecordingMixin) + 1 :]
    return next((_name_of(c) for c in below if method in vars(c)), _name_of(kind))


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _class_of(name: str) -> type[Update]:
    module, _, attribute = name.rpartition(".")
    return getattr(import_module(module), attribute)


def _optimizers(agent: Any) -> dict[str, torch.optim.Optimizer]:
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


def _others_of(agent: Any) -> list[Any]:
    """Return what a recording holds on to beside the policy's: if it is replaced, record anew."""
    tensors = [attrgetter(name)(agent) for name in agent._get_torch_save_params()[1]]
    return [
        *((id(t), t.data_ptr(), t.requires_grad) for t in tensors),
        *(id(optimizer) for optimizer in _optimizers(agent).values()),
    ]


class _State:
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
            for name, optimizer in _optimizers(agent).items()
        }
        self._rates = {
            name: [group["lr"] for group in optimizer.param_groups]
            for name, optimizer in _optimizers(agent).items()
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
        for name, optimizer in _optimizers(agent).items():
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

    def difference(self, other: _State) -> str:
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


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, Tensor) else value


def bits(value: Any) -> Any:
    """Return what is equal for equal bits: NaN equals itself, and 0.0 is not -0.0."""
    if isinstance(value, Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, (list, tuple)):
        return [bits(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return str(value.dtype), value.tobytes()
    return type(value), repr(value)


def _with_own_memory(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        copied = copy.copy(value)  # with the attributes that torch gives it
        copied.update({key: _with_own_memory(item) for key, item in value.items()})
        return copied
    if isinstance(value, list):
        return [_with_own_memory(item) for item in value]
    return value
