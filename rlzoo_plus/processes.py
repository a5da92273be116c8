"""Processes: signals that ask one to end cleanly, starts without the user's script, imports."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType, ModuleType
from typing import Any

Handler = Callable[[int, FrameType | None], None]
# Missing on Windows.
_HANGUP: int | None = getattr(signal, "SIGHUP", None)
_RARELY = 1_000_000
# What a terminal or a scheduler sends to all processes is for the one that started the others.
_SENT_TO_ALL = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")
# Like a forked process, it imports what this one can import.
_CHILD = """import json, os, signal, sys
ticket = json.loads(open(os.dup(0), "rb", buffering=0).readline())
for number in ticket["ignored"]:
    signal.signal(number, signal.SIG_IGN)
sys.path[:] = ticket["path"]
from MODULE import serve
sys.exit(serve(ticket))
"""
_usual_thresholds: tuple[int, int, int] | None = None


def pause_gc() -> None:
    """Let Python's collector of cycles rest while libraries are imported: it finds nothing there.

    For commands only: `resume_gc` ends it.
    """
    global _usual_thresholds
    _usual_thresholds = gc.get_threshold()
    gc.set_threshold(_RARELY)


def resume_gc() -> None:
    """End `pause_gc`, if it has begun; no later collection looks at what exists by now.

    The last ones, as the process ends, are the longest.
    """
    global _usual_thresholds
    if _usual_thresholds is not None:
        gc.freeze()
        gc.set_threshold(*_usual_thresholds)
        _usual_thresholds = None


@contextlib.contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Set handlers, inside; does nothing outside of the main thread, where Python forbids it."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, handler) for n, handler in handlers.items() if is_main}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_signals_go_to(handler: Handler) -> contextlib.AbstractContextManager[None]:
    """Give a handler SIGINT, SIGTERM and SIGHUP, inside.

    SIGHUP comes when an ssh connection or a terminal is closed. It stays ignored where it is
    ignored, as under nohup. The shell may send it again; only the first one counts.
    """
    terminals = [number for number in range(3) if os.isatty(number)]

    def on_hangup(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)
        # Writing to a closed terminal would end the process.
        point_at_devnull(*terminals)
        handler(number, frame)

    handlers: dict[int, Handler] = {signal.SIGINT: handler, signal.SIGTERM: handler}
    if _HANGUP is not None and signal.getsignal(_HANGUP) is not signal.SIG_IGN:
        handlers[_HANGUP] = on_hangup
    return signal_handlers(handlers)


def without_ctrl_c() -> contextlib.AbstractContextManager[None]:
    """Let a process that starts inside ignore what a terminal sends: the controller gets it."""
    numbers = [signal.SIGINT] if _HANGUP is None else [signal.SIGINT, _HANGUP]
    return signal_handlers(dict.fromkeys(numbers, signal.SIG_IGN))


def point_at_devnull(*numbers: int) -> None:
    """Let file descriptors read nothing, and write nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in numbers:
        os.dup2(nothing, number)
    os.close(nothing)


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Let a process that starts inside not run the user's script again.

    Each process of multiprocessing would import the main module of the one that started it, so
    that a script would need `if __name__ == "__main__"`. Jobs name the function that they call.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def start_child(
    module: str, ticket: Mapping[str, Any], *, descriptors: Sequence[int] = (), session: bool = True
) -> subprocess.Popen[bytes]:
    """Start a process that calls `serve(ticket)` of a module, and ends with what that returns.

    The ticket is the first line of its input, which ends when this process ends.

    Args:
        module: Its dotted name.
        ticket: Plain data; `path` and `ignored` are added.
        descriptors: Of files that it has open, too.
        session: Whether a terminal's signals do not reach it at all.
    """
    numbers = [int(getattr(signal, name)) for name in _SENT_TO_ALL if hasattr(signal, name)]
    # Until it has read its ticket, too.
    with signal_handlers(dict.fromkeys(numbers, signal.SIG_IGN)):
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _CHILD.replace("MODULE", module)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=descriptors,
            start_new_session=session,
        )
    assert process.stdin is not None
    # One that has ended already is found when it is to answer.
    with contextlib.suppress(OSError):
        text = json.dumps({**ticket, "path": sys.path, "ignored": numbers})
        process.stdin.write(text.encode() + b"\n")
        process.stdin.flush()
    return process


def how_it_ended(code: int | None) -> str:
    """Return how a process ended, by its exit code, None if it runs."""
    if code is None:
        return "does not answer any more"
    if code >= 0:
        return f"ended by itself, with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    likely = ", most likely because the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was killed by {name}{likely}"
