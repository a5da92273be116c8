"""A second process of a run: how it is started, told what to do, heard and ended; and its own side.

The ticket, its orders and its answers are lines of JSON or text in pipes. Its input ends with the
process that started it, and then it ends, too.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.run_dir import RunLock
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError
from rlzoo_plus.processes import start_child

log = logging.getLogger(__name__)
_END_S, _LONGEST_ANSWER = 5.0, 2**16
# A process of before may be writing its last checkpoint.
_PATIENCE_S = 60.0


class Child:
    """A process that serves a ticket."""

    def __init__(self, module: str, ticket: dict[str, Any], descriptor: int) -> None:
        """Start it.

        Args:
            module: Of this room; its `serve(ticket)` returns the exit code.
            ticket: What it is to do, as plain data.
            descriptor: Of a file that it has open, too.
        """
        place = f"rlzoo_plus.learner.{module}"
        self._process = start_child(place, ticket, descriptors=[descriptor])

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended, None if that is not known."""
        return self._process.returncode

    def poll(self) -> int | None:
        """Return its exit code, None while it runs."""
        return self._process.poll()

    def tell(self, line: str) -> None:
        """Write a line to it; one that has ended does not hear it."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

    def read_line(self) -> str:
        """Return the next line that it says, empty if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline(_LONGEST_ANSWER).decode(errors="replace")

    def last_words(self) -> str:
        """Wait for its end; return what it said last: an error, or a reason."""
        line = self.read_line()
        code = self._process.wait()
        try:
            answer = json.loads(line)
        except ValueError:
            return f"signal {-code}" if code < 0 else f"exit code {code}"
        return str(answer.get("error") or answer.get("reason"))

    def stop(self) -> None:
        """End it, and let go of it."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def held(path: Path) -> RunLock:
    """Return the lock of what one process at a time may write, once an earlier one has ended.

    Raises:
        RunError: It does not end.
    """
    lock, end = RunLock(path), time.monotonic() + _PATIENCE_S
    while not lock.acquire():
        if time.monotonic() > end:
            where = printable(path.parent)
            raise RunError(f"{where}: the second process of an earlier session does not end.")
    return lock


def answering(work: Callable[[Callable[[str], None]], str]) -> int:
    """Do the work of such a process; return the exit code.

    The output has its lines, and then one with the outcome in JSON. What is printed otherwise goes
    to the errors.

    Args:
        work: Gets a function that says a line; returns why it has ended.
    """
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    code = 0

    def say(line: str) -> None:
        with contextlib.suppress(OSError):
            answers.write(line + "\n")
            answers.flush()

    try:
        answer = {"reason": work(say)}
    except ConfigError as error:
        code, answer = USER_ERROR, {"error": str(error)}
    # The user's own code can raise anything.
    except Exception as error:
        log.debug("this process was ended by", exc_info=True)
        is_known = isinstance(error, RunError)
        text = str(error) if is_known else f"{type(error).__name__}: {one_line(error)}"
        code, answer = RUN_ERROR, {"error": text}
    say(json.dumps(answer))
    with contextlib.suppress(OSError):
        answers.close()
    return code
