"""A place to stand between two iterations of a Stable-Baselines3 algorithm.

The top of the `learn()` loop, before experience is collected, is the one point where an
algorithm's state is small and complete. Evaluation, checkpoints and stopping happen there, so
that a later resume can continue from the same point. SB3 offers no callback for it: its
`on_rollout_start` comes after exploration noise has been drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class StopTraining(Exception):  # noqa: N818 - a signal, not an error
    """End training at the top of an iteration.

    Attributes:
        reason: Why, for the user.
        interrupted: Whether the run was cut short from outside and can be continued.
    """

    def __init__(self, reason: str, *, interrupted: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.interrupted = interrupted


class IterationHook:
    """Mixin for an algorithm: calls `before_iteration` at the top of its loop."""

    before_iteration: Callable[[], None] | None = None

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> Any:
        """Collect experience, after the hook; on- and off-policy algorithms pass here."""
        if self.before_iteration is not None:
            self.before_iteration()
        return super().collect_rollouts(*args, **kwargs)  # type: ignore[misc]

    def _do_one_update(self, *args: Any, **kwargs: Any) -> Any:
        """Update once, after the hook; augmented random search passes here."""
        if self.before_iteration is not None:
            self.before_iteration()
        return super()._do_one_update(*args, **kwargs)  # type: ignore[misc]

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "before_iteration"]  # type: ignore[misc]


def with_iteration_hook(algorithm: type) -> type:
    """Return a subclass of an algorithm that has the hook, under the algorithm's own name."""
    return type(algorithm.__name__, (IterationHook, algorithm), {"__doc__": algorithm.__doc__})
