"""One answer of a server, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

POLICY, OVERRIDE, FALLBACK = "policy", "override", "fallback"


@dataclass(frozen=True, slots=True)
class Decision:
    """One answer."""

    action: Any
    version: str
    session: str
    source: str
    step: int
    reason: str | None  # Why the policy has not decided
    value: float | None

    def as_json(self) -> dict[str, Any]:
        """Return it as it is sent."""
        told = {
            "action": self.action.tolist() if isinstance(self.action, np.ndarray) else self.action,
            **{"version": self.version, "session": self.session, "source": self.source},
            "step": self.step,
        }
        if self.reason is not None:
            told["reason"] = self.reason
        return told if self.value is None else {**told, "value": self.value}
