"""`FastUpdates`: updates an agent with hand-written backward passes where its policy is known."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from rlzoo_plus.fast.handwritten.products import lacks_bfloat16
from rlzoo_plus.fast.recorded import onednn
from rlzoo_plus.fast.recorded.bit_comparison import State
from rlzoo_plus.fast.recorded.known_code import owner_of
from rlzoo_plus.fast.recorded.recorded_updates import RecordedUpdates, class_of

log = logging.getLogger(__name__)
_ON_POLICY = "rlzoo_plus.fast.handwritten.on_policy_gradients"
_OFF_POLICY = "rlzoo_plus.fast.handwritten.off_policy_gradients"
FAST = {
    "stable_baselines3.ppo.ppo.PPO": f"{_ON_POLICY}.FastPPOUpdate",
    "stable_baselines3.a2c.a2c.A2C": f"{_ON_POLICY}.FastA2CUpdate",
    "stable_baselines3.sac.sac.SAC": f"{_OFF_POLICY}.FastSACUpdate",
    "sb3_contrib.tqc.tqc.TQC": f"{_OFF_POLICY}.FastTQCUpdate",
    "stable_baselines3.td3.td3.TD3": f"{_OFF_POLICY}.FastTD3Update",
}

_SAME = "the same mathematics, other rounding than SB3's"
_ROUNDED = "products of large layers in bfloat16, all else in single precision"


class FastUpdates(RecordedUpdates):
    """Updates an agent with the same mathematics and other rounding.

    When a training starts, and after a resume, the gradients of one minibatch are compared with
    those of autograd. Where the algorithm or its policy is not known, updates are recorded as
    without `fast`; their large products are made by oneDNN where that is faster, else the bits are
    those of Stable-Baselines3.

    Attributes:
        not_fast: Why they are not fast, empty if they are.
    """

    def __init__(self, *, records: bool = True, rounds: bool = False) -> None:
        """Make updates of an agent fast from its first one on.

        Args:
            records: Whether updates that cannot be fast are recorded.
            rounds: Whether SAC, TQC, TD3 and DDPG make products of large layers in bfloat16.
        """
        super().__init__()
        self.not_fast = ""
        self._records, self._rounds = records, rounds
        self._avoids_onednn = False

    def _check(self, agent: Any, plain: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        reason = self.not_fast or self._begin(agent, *args, **kwargs)
        if not reason:
            return
        is_first, self.not_fast = not self.not_fast, reason
        is_by_onednn = False
        if self._records:
            before = State(agent) if onednn.is_faster() and not self._avoids_onednn else None
            super()._check(agent, plain, *args, **kwargs)
            if before is not None and self._update is not None:
                is_by_onednn = self._by_onednn(agent, before, *args, **kwargs)
        else:
            self.reason = "record_updates=false"
            plain(*args, **kwargs)
        if not is_first:
            return
        value = "bfloat16" if self._rounds else "true"
        if is_by_onednn:
            told = "fast=%s: updates are recorded, with large products by oneDNN, since %s"
            log.info(told, value, reason)
        else:
            log.warning("fast=%s has no effect on updates: %s", value, reason)

    def _by_onednn(self, agent: Any, before: State, *args: Any, **kwargs: Any) -> bool:
        """Make a recorded update again, large products by oneDNN; return whether it has some.

        What a resumed run does first is what it would have done without the stop.
        """
        assert self._update is not None
        after, update_class = State(agent), type(self._update)
        before.restore()
        with self.failures() as reasons:
            # The averages of the optimizers were made anew.
            update = update_class(agent)
            update.by_onednn = True
            kind = update.kind(*args, **kwargs)
            agent.policy.set_training_mode(True)
            with torch.no_grad():
                update.make(*args, **kwargs)
        if reasons:
            after.restore()
            self._update, self._avoids_onednn = None, True
            return False
        self._keep(agent, update, kind)
        return update.n_by_onednn > 0

    def _begin(self, agent: Any, *args: Any, **kwargs: Any) -> str:
        """Make the first update of a kind; return why it is not made, empty if it is."""
        owner = owner_of(type(agent), "train")
        if owner not in FAST:
            return f"{owner.rpartition('.')[2]} has no fast ones"
        before = State(agent)
        update_class: Any = class_of(FAST[owner])
        options = {"rounds": True} if self._rounds and update_class.can_round else {}
        with self.failures() as reasons:
            update = self._update  # if there is one, it is current
            if update is None or not update.is_of_all_kinds:
                update = update_class(agent, **options)
            kind = update.kind(*args, **kwargs)
            agent.policy.set_training_mode(True)
            with torch.no_grad():
                update.make(*args, **kwargs)
        if reasons:
            before.restore()
            return reasons[0]
        if not self._checked:
            log.info("updates are fast: %s", _ROUNDED if options else _SAME)
            if self._rounds:
                _warn_of_rounding(owner.rpartition(".")[2], bool(options))
        self.n_recorded += 1
        self._keep(agent, update, kind)
        return ""


def _warn_of_rounding(name: str, is_rounded: bool) -> None:
    if not is_rounded:
        log.warning("fast=bfloat16 is fast=true: %s makes its products in full precision", name)
    elif lacks_bfloat16():
        log.warning(
            "fast=bfloat16: this processor has no instructions for products of bfloat16 "
            "(AVX512_BF16, AMX). Use fast=true, which is faster here."
        )
