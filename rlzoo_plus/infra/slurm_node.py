"""The process that SLURM starts on a node: it runs one job, and writes down how it ended."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.infra.handle import ProcessHandle
from rlzoo_plus.infra.job import JobEnd
from rlzoo_plus.infra.node import LOOK_S, STOPPED, note_in_log, spawn

TICKET, REQUEST, END = "ticket.json", "request", "end.json"
STOP, KILL = "stop", "kill"
# Longer than SLURM gives to a job that it preempts or cancels, in most places.
_KILL_AFTER_S = 600.0


def run_job(folder: str) -> NoReturn:
    """Run the job of a folder and end with its exit code.

    submitit calls this. It never returns, so that submitit has nothing to write that someone
    would have to unpickle.
    """
    code = 1
    try:
        code = _Supervisor(Path(folder)).run()
    finally:
        os._exit(code if code >= 0 else 128 - code)


class _Supervisor:
    """Stands between SLURM and the job: signals, limits, and what the controller asks for.

    Attributes:
        folder: The job's folder on the shared disk.
        signalled: What SLURM wanted, as a sentence; None if nothing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.signalled: str | None = None
        self._stop_since: float | None = None

    def run(self) -> int:
        ticket = json.loads((self.folder / TICKET).read_text(encoding="utf-8"))
        self._listen()
        if self._asked() is not None:
            return self._write(JobEnd(STOPPED))
        try:
            handle = spawn(ticket)
        except OSError as error:
            note_in_log(ticket, f"cannot be started: {error}")
            return self._write(JobEnd(1, f"cannot be started: {error}"))
        while (end := handle.poll()) is None:
            self._obey(handle)
            time.sleep(LOOK_S)
        return self._write(end)

    def _listen(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        signal.signal(signal.SIGTERM, self._on_signal)
        # submitit has SLURM send it some time before the end of the job's time.
        signal.signal(signal.SIGUSR2, self._on_signal)
        signal.signal(signal.SIGCONT, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR2:
            self.signalled = "stopped at the end of its time on the cluster; it can go on"
        elif self.signalled is None:
            self.signalled = "stopped by the cluster; it can go on"

    def _obey(self, handle: ProcessHandle) -> None:
        asked = self._asked()
        now = time.monotonic()
        if asked is None and self.signalled is None:
            return
        if asked == KILL or (self._stop_since and now - self._stop_since > _KILL_AFTER_S):
            handle.kill()
        elif self._stop_since is None:
            self._stop_since = now
            handle.stop()

    def _asked(self) -> str | None:
        try:
            return (self.folder / REQUEST).read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    def _write(self, end: JobEnd) -> int:
        """Write how the job ended; what SLURM wanted only if the job has ended for it."""
        is_stopped = end.code < 0 or end.code in (STOPPED, 130)
        by_cluster = is_stopped and end.limit is None and self._asked() is None
        cluster = self.signalled if by_cluster else None
        write_json(self.folder / END, {"code": end.code, "limit": end.limit, "cluster": cluster})
        return end.code
