"""The signals that ask a process to end cleanly: Ctrl-C, SIGTERM, and that of a closed terminal."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Handler = Callable[[int, FrameType | None], None]
# Missing on Windows.
HANGUP: int | None = getattr(signal, "SIGHUP", None)


@contextlib.contextmanager
def stop_signals_go_to(handler: Handler) -> Iterator[None]:
    """Let a handler have the signals that ask to end, inside; see `take_stop_signals`."""
    before = take_stop_signals(handler)
    try:
        yield
    finally:
        give_back_signals(before)


def take_stop_signals(handler: Handler) -> dict[int, Any]:
    """Let a handler have SIGINT, SIGTERM and SIGHUP from now on.

    SIGHUP comes when an ssh connection or a terminal is closed. It is left alone where it is
    ignored, as under nohup. The shell may send it again, which then counts for nothing.

    Returns:
        Who had them before, for `give_back_signals`.
    """
    before: dict[int, Any] = {
        number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)
    }
    if HANGUP is None or signal.getsignal(HANGUP) is signal.SIG_IGN:
        return before
    terminals = [number for number in range(3) if os.isatty(number)]

    def on_hangup(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        _leave(terminals)
        handler(number, frame)

    before[HANGUP] = signal.signal(HANGUP, on_hangup)
    return before


def give_back_signals(before: dict[int, Any]) -> None:
    """Give signals back to who had them."""
    for number, handler in before.items():
        signal.signal(number, handler)


def _leave(terminals: list[int]) -> None:
    """Send what is printed nowhere: writing to a terminal that is gone would end the process."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in terminals:
        os.dup2(nothing, number)
    os.close(nothing)
