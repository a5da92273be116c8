"""One answer of a server, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

POLICY, SHIELD, OVERRIDE, FALLBACK = "policy", "shield", "override", "fallback"


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer."""

    action: Any
    version: str
    session: str
    source: str
    step: int
    reason: str | None  # Why the policy has not decided, or what limits changed its commands
    value: float | None
    commands: Mapping[str, Mapping[str, float]] | None = None  # Of the joints, with a shield
    changes: Mapping[str, float] = field(default_factory=dict)  # What the shield changed, by limit

    def as_json(self) -> dict[str, Any]:
        """Return it as it is sent."""
        told = {
            "action": self.action.tolist() if isinstance(self.action, np.ndarray) else self.action,
            **{"version": self.version, "session": self.session, "source": self.source},
            "step": self.step,
        }
        if self.reason is not None:
            told["reason"] = self.reason
        if self.commands is not None:
            told |= {"commands": self.commands, "shield": self.changes}
        return told if self.value is None else {**told, "value": self.value}
