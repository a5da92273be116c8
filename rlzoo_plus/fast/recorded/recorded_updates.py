"""`RecordedUpdates`: updates the networks of an algorithm of Stable-Baselines3 from recordings.

The first update of each kind is made by the algorithm itself, of several epochs the first one. It
is then repeated from a recording and compared, bit for bit: weights, averages of the optimizers,
counters, logged values and random generators. What differs, or cannot be recorded, is never used.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch

from rlzoo_plus.config.catalog import GROUP_BUFFER, MIXED_BUFFER
from rlzoo_plus.fast.recorded.bit_comparison import State
from rlzoo_plus.fast.recorded.change_detector import ChangeDetector
from rlzoo_plus.fast.recorded.known_code import Recorder, name_of, owner_of
from rlzoo_plus.fast.recorded.optimizers import PlainSteps
from rlzoo_plus.fast.recorded.tape import NotRecordableError, Tape

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm

log = logging.getLogger(__name__)
# The class whose `train` is recorded, and what does that.
_ON_POLICY = "rlzoo_plus.fast.recorded.on_policy"
_OFF_POLICY = "rlzoo_plus.fast.recorded.off_policy"
UPDATES = {
    "stable_baselines3.ppo.ppo.PPO": f"{_ON_POLICY}.PPOUpdate",
    "stable_baselines3.a2c.a2c.A2C": f"{_ON_POLICY}.A2CUpdate",
    "stable_baselines3.sac.sac.SAC": f"{_OFF_POLICY}.SACUpdate",
    "stable_baselines3.td3.td3.TD3": f"{_OFF_POLICY}.TD3Update",
    "stable_baselines3.dqn.dqn.DQN": "rlzoo_plus.fast.recorded.dqn.DQNUpdate",
    "sb3_contrib.tqc.tqc.TQC": f"{_OFF_POLICY}.TQCUpdate",
    "sb3_contrib.qrdqn.qrdqn.QRDQN": "rlzoo_plus.fast.recorded.dqn.QRDQNUpdate",
    "sb3_contrib.crossq.crossq.CrossQ": "rlzoo_plus.fast.recorded.crossq.CrossQUpdate",
}
_BUFFERS = "stable_baselines3.common.buffers."
_KNOWN_BUFFERS = {
    *(_BUFFERS + name for name in ("RolloutBuffer", "ReplayBuffer", "NStepReplayBuffer")),
    *(_BUFFERS + name for name in ("DictRolloutBuffer", "DictReplayBuffer")),
    GROUP_BUFFER,
    "stable_baselines3.her.her_replay_buffer.HerReplayBuffer",
}


class Update:
    """The update of one algorithm, from recordings.

    Attributes:
        is_of_all_kinds: Whether one object can make updates of several kinds.
        by_onednn: Whether recordings make large products by oneDNN: the bits are others.
    """

    is_of_all_kinds = False
    by_onednn = False

    def __init__(self, agent: BaseAlgorithm) -> None:
        self.agent: Any = agent
        self.steps: list[PlainSteps] = []
        self._tapes: dict[Any, Tape] = {}

    @property
    def n_by_onednn(self) -> int:
        """Number of products in all recordings that are made by oneDNN."""
        return sum(tape.n_by_onednn for tape in self._tapes.values())

    @classmethod
    def first_part(cls, agent: Any) -> contextlib.AbstractContextManager[bool]:
        """Let an agent's `train` make a first part alone, if the rest makes the same calls.

        The context is whether it does.
        """
        del agent
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


class RecordedUpdates(Recorder):
    """Updates an agent from recordings wherever that gives the same bits.

    Attributes:
        n_recorded: Updates made from recordings.
    """

    work = "updates"

    def __init__(self) -> None:
        super().__init__()
        self.n_recorded = 0
        self._update: Update | None = None
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
                self.set_training_mode(True, agent.policy.set_training_mode, agent)
                with torch.no_grad():
                    self._update.make(*args, **kwargs)
                self.n_recorded += 1
                return
        else:
            self.forget()
        if reason := self.why_not(agent):
            self.refuse(reason, logging.INFO)
            plain(*args, **kwargs)
            return
        self._check(agent, plain, *args, **kwargs)
        if agent.trusted_code_token is not None:
            # Weights may have been given another place in memory.
            agent.trusted_code_token = object()

    def _check(self, agent: Any, plain: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Let the algorithm update itself, then do the same from a recording, and compare.

        Where a first part of an update tells as much as the whole, only that is made twice.
        """
        self._update = None  # its memory is free for the new one
        before = State(agent)
        update_class = class_of(UPDATES[owner_of(type(agent), "train")])
        try:
            kind = update_class(agent).kind(*args, **kwargs)
        except NotRecordableError as error:
            self.refuse(str(error))
            plain(*args, **kwargs)
            return
        with update_class.first_part(agent) as is_part:
            plain(*args, **kwargs)
            after = State(agent)
            before.restore()
            with self.failures() as reasons:
                update = update_class(agent)
                with torch.no_grad():
                    update.make(*args, **kwargs)
                if difference := after.difference(State(agent)):
                    reasons.append(f"{difference} differs from SB3")
        if is_part:
            before.restore()
            if not reasons:
                with self.failures() as reasons:
                    # The averages of the optimizers were made anew.
                    update = update_class(agent)
                    with torch.no_grad():
                        update.make(*args, **kwargs)
        if reasons:
            self.refuse(reasons[0])
            if is_part:
                before.restore()
                plain(*args, **kwargs)
            else:
                after.restore()
            return
        if not self._checked:
            log.debug("updates are recorded: the first one came out the same, bit for bit")
        self._keep(agent, update, kind)

    def forget(self) -> None:
        """Give up the update; what was compared was the agent as it was before."""
        super().forget()
        self._update = None
        self._checked.clear()

    def refuse(self, reason: str, level: int = logging.WARNING) -> None:
        """Record nothing any more."""
        super().refuse(reason, level)
        self._update = None

    def why_not(self, agent: Any) -> str:
        """Return why an agent's updates cannot be recorded, empty if they may be.

        Code that is not known may decide anew at each update, which a recording would not notice.
        """
        owner = owner_of(type(agent), "train")
        if owner not in UPDATES:
            return f"{owner.rpartition('.')[2]}.train is not one of those that can be"
        buffer = getattr(agent, "replay_buffer", None) or getattr(agent, "rollout_buffer", None)
        kind = type(buffer)
        if name_of(kind) == MIXED_BUFFER:
            kind = kind.__mro__[1]
        if name_of(kind) not in _KNOWN_BUFFERS:
            return f"{kind.__name__} is not one of the buffers that are known"
        return super().why_not(agent)

    def _keep(self, agent: Any, update: Update, kind: Any) -> None:
        """Use an update of this kind until what it holds on to is replaced."""
        self._checked.add(kind)
        self._update = update
        self.detector = ChangeDetector(agent)

    def _is_current(self, agent: Any) -> bool:
        assert self._update is not None
        assert self.detector is not None
        if agent.policy is self.detector.network and not self.detector.is_due(
            agent.trusted_code_token
        ):
            return True
        return self.detector.fits(agent) and self._update.is_current()


def class_of(name: str) -> type[Update]:
    """Return what updates an algorithm, by its module and name; it is imported now."""
    module, _, attribute = name.rpartition(".")
    found: type[Update] = getattr(import_module(module), attribute)
    return found
