"""`TrainingMode`: sets whether a policy is in training mode, without a walk through its modules.

Off-policy algorithms set it three times at each step: twice to act, once to update.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn


class TrainingMode:
    """Sets the mode of a policy whose modules stay the same.

    Attributes:
        is_known: Whether it can: no module does anything else when its mode is set.
    """

    def __init__(self, policy: nn.Module, plain: Callable[[bool], None]) -> None:
        """Find out which modules change with the mode; they keep the one that they have.

        Args:
            policy: The policy.
            plain: Its own `set_training_mode`.
        """
        modules = list(policy.modules())
        before = [module.training for module in modules]
        found = []
        for mode in (True, False):
            plain(mode)
            found.append([module.training for module in modules])
        for module, mode in zip(modules, before, strict=True):
            module.training = mode
        follows = [modes == (True, False) for modes in zip(*found, strict=True)]
        stays = [a == b == mode for a, b, mode in zip(*found, before, strict=True)]
        is_plain = all(type(module).train is nn.Module.train for module in modules)
        self.is_known = is_plain and all(map(bool.__or__, follows, stays))
        self._followers = [vars(m) for m, does in zip(modules, follows, strict=True) if does]

    def set(self, mode: bool) -> None:
        """Do what `set_training_mode` does."""
        for attributes in self._followers:
            attributes["training"] = mode
