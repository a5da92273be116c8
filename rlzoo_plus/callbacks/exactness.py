"""Whether a run is, bit for bit, the one that would have been without interruptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.single import foreign_code


def has_user_code(config: RunConfig) -> bool:
    """Tell whether code that is not ours takes part in a training."""
    return bool(foreign_code(config.env) or config.algo.packages or config.callbacks)


@dataclass
class Exactness:
    """The account of a run's interruptions.

    Attributes:
        resumed_at: Environment steps at which the run went on.
        inexact_since: The first step after which it may differ; None if it is exact.
        because: Why it may.
    """

    resumed_at: list[int] = field(default_factory=list)
    inexact_since: int | None = None
    because: list[str] = field(default_factory=list)

    def note_resume(self, step: int, reasons: list[str]) -> None:
        """Record that the run went on at a step, with what was not the same there."""
        self.resumed_at.append(step)
        if reasons:
            if self.inexact_since is None:
                self.inexact_since = step
            self.because += [reason for reason in reasons if reason not in self.because]

    def note_difference(self, since: int, reason: str) -> bool:
        """Record a row that came out otherwise than before a stop; tell whether that is news."""
        if self.inexact_since is not None:
            return False
        self.inexact_since = since
        self.because.append(reason)
        return True

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Exactness:
        """Read what `state` returned, which may come from anywhere.

        Raises:
            ValueError: It is something else.
        """
        account = cls(**state)
        steps = [*account.resumed_at, account.inexact_since or 0]
        if not all(type(step) is int for step in steps) or not isinstance(account.because, list):
            raise ValueError("the account of its interruptions is none")
        because = [printable(reason) for reason in account.because]
        return cls(list(account.resumed_at), account.inexact_since, because)

    def state(self) -> dict[str, Any]:
        """Return the account as plain data."""
        return {
            "resumed_at": list(self.resumed_at),
            "inexact_since": self.inexact_since,
            "because": list(self.because),
        }
