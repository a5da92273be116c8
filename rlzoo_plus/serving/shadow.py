"""A candidate that decides beside the policy in a process of its own; nothing waits for it.

What it would have done, and how far that is from what was done, goes into a file.
"""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.decision import Decision
from rlzoo_plus.serving.served_policy import Arrays, ServedPolicy

log = logging.getLogger(__name__)

QUEUE = 1000
_RESTARTS, _PAUSE_S, _POLL_S = 5, 1.0, 0.2


class Shadow:
    """Hands what was decided to the candidate's process, and leaves out what it cannot take.

    Attributes:
        version: The candidate's version.
        offered: Decisions that were handed over.
        dropped: Decisions that were not, since it is too slow or gone.
        is_up: Whether its process runs.
    """

    def __init__(
        self, policy: ServedPolicy, folder: Path, output: Path, command: Sequence[str] = ()
    ) -> None:
        """Start the candidate.

        Args:
            policy: The candidate.
            folder: Where it lies.
            output: The file of the comparison, which is appended to.
            command: What runs it, by default this package.

        Raises:
            ConfigError: The file cannot be written.
        """
        self._command = command or (sys.executable, "-m", "rlzoo_plus.serving.shadow_process")
        self._output = output
        try:
            output.open("a").close()
        except OSError as error:
            where = printable(output)
            raise ConfigError(f"--shadow-file {where}: {error.strerror}. Name another.") from None
        self.offered = self.dropped = 0
        self.is_up, self._ends = False, False
        self._queue: queue.Queue[dict[str, Any]] = queue.Queue(QUEUE)
        self._process: subprocess.Popen[bytes] | None = None
        self.replace(policy, folder)
        self._thread = threading.Thread(target=self._feed, name="shadow", daemon=True)
        self._thread.start()

    def replace(self, policy: ServedPolicy, folder: Path) -> None:
        """Take another version of the candidate."""
        self._policy, self._folder, self.version = policy, folder, policy.version
        self._failures, self._moved = 0, True

    def offer(self, by: ServedPolicy, decision: Decision, given: Arrays) -> None:
        """Hand a decision over; returns at once."""
        if not by.takes_the_same(self._policy):
            self.dropped += 1
            return
        try:
            self._queue.put_nowait({"decision": decision, "given": given, "time": time.time()})
            self.offered += 1
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """End the candidate's process."""
        self._ends = True
        self._thread.join(10 * _POLL_S)
        self._stop()

    def _feed(self) -> None:
        while not self._ends:
            if self._moved:
                self._moved = False
                self._stop()
            if self._process is None and self._failures <= _RESTARTS:
                self._start()
            try:
                item = self._queue.get(timeout=_POLL_S)
            except queue.Empty:
                self._look()
                continue
            if self._process is None:
                self.dropped += 1
                continue
            decision = item["decision"]
            told = {
                "time": item["time"],
                **decision.as_json(),
                "given": {name: array.tolist() for name, array in item["given"].items()},
            }
            pipe = self._process.stdin
            try:
                assert pipe is not None
                pipe.write(json.dumps(told).encode() + b"\n")
                pipe.flush()
            except OSError:
                self.dropped += 1
                self._look()

    def _start(self) -> None:
        arguments = [str(self._folder), self._policy.name, self.version, str(self._output)]
        try:
            self._process = subprocess.Popen([*self._command, *arguments], stdin=subprocess.PIPE)
            self.is_up = True
        except OSError as error:
            log.warning("the shadow cannot be started: %s", error)
            self._failures += 1

    def _look(self) -> None:
        """Notice a process that ended, which starts again a few times."""
        if self._process is None or self._process.poll() is None:
            return
        log.warning("the shadow ended with code %s", self._process.returncode)
        self._stop()
        self._failures += 1
        time.sleep(_PAUSE_S)

    def _stop(self) -> None:
        process, self._process, self.is_up = self._process, None, False
        if process is None:
            return
        process.kill()
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
