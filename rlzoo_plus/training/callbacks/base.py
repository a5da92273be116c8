"""What our callbacks share: they act between iterations, and end a run when it is asked for."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from stable_baselines3.common.callbacks import BaseCallback

from rlzoo_plus.agents.hooks import StopTraining
from rlzoo_plus.processes import signal_handlers, stop_signals_go_to


class RunCallback(BaseCallback):
    """A Stable-Baselines3 callback that acts at the top of an iteration.

    `on_iteration` is called before experience is collected, when the agent's state is complete;
    see `rlzoo_plus.agents.hooks`. The frequencies of callbacks count environment steps.
    """

    def on_iteration(self) -> None:
        """Act between two iterations."""

    def state_dict(self) -> dict[str, Any]:
        """Return what a resumed run needs, as plain data."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def _on_step(self) -> bool:
        return True


@dataclass
class StopRequest:
    """What signals and listeners ask of a run; it is done at the top of the next iteration."""

    signal_number: int | None = None  # the signal that asked to stop
    checkpoint: bool = False  # whether a checkpoint is asked for
    reason: str | None = None  # why a listener of the evaluations asks to stop
    _handlers: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False)
    _ends_at_once: bool = field(default=False, repr=False)

    @property
    def signal_reason(self) -> str:
        """The reason to stop that names the signal."""
        assert self.signal_number is not None
        return f"stopped by {signal.Signals(self.signal_number).name}"

    def listen(self) -> None:
        """Take SIGINT, SIGTERM and SIGHUP as requests to stop, SIGUSR1 for a checkpoint.

        A second SIGINT ends the process at once.
        """
        self._handlers.enter_context(stop_signals_go_to(self._on_stop))
        if hasattr(signal, "SIGUSR1"):
            handlers: dict[int, Any] = {signal.SIGUSR1: self._on_checkpoint}
            self._handlers.enter_context(signal_handlers(handlers))

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Let a signal end the block at once, where no step has been taken yet.

        Raises:
            StopTraining: A signal has come.
        """
        self._ends_at_once = True
        try:
            yield
        finally:
            self._ends_at_once = False

    def restore(self) -> None:
        """Restore the signal handlers of before."""
        self._handlers.close()

    def _on_stop(self, number: int, _frame: FrameType | None) -> None:
        if self.signal_number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal_number = number
        if self._ends_at_once:
            # Only once: nothing may interrupt the cleanup.
            self._ends_at_once = False
            raise StopTraining(self.signal_reason, interrupted=True)

    def _on_checkpoint(self, _number: int, _frame: FrameType | None) -> None:
        self.checkpoint = True
