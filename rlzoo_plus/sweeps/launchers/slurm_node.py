"""The process that SLURM starts on a node: it runs one job, and records how it ended."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.errors import EXIT_SIGINT, EXIT_SIGTERM
from rlzoo_plus.processes import signal_handlers
from rlzoo_plus.sweeps.launchers.node import STOP, supervise

# Files in a job's folder on the shared disk: the job, `stop` or `kill`, and how it ended.
TICKET, REQUEST, END = "ticket.json", "request", "end.json"
# Longer than SLURM gives to a job that it preempts or cancels, in most places.
_KILL_AFTER_S = 600.0


def run_job(folder: str) -> NoReturn:
    """Run the job of a folder and end with its exit code.

    submitit calls this. It never returns, so that submitit writes no result that the controller
    would have to unpickle.
    """
    code = 1
    try:
        code = _run(Path(folder))
    finally:
        os._exit(code if code >= 0 else 128 - code)


def _run(folder: Path) -> int:
    ticket = json.loads((folder / TICKET).read_text(encoding="utf-8"))
    signals: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        signals.append(number)

    def asked() -> str | None:
        try:
            return (folder / REQUEST).read_text(encoding="utf-8").strip() or None
        except OSError:
            return None

    # submitit has SLURM send SIGUSR2 some time before the end of the job's time.
    handlers: dict[int, Any] = dict.fromkeys((signal.SIGTERM, signal.SIGUSR2), on_signal)
    handlers |= dict.fromkeys((signal.SIGCONT, signal.SIGINT), signal.SIG_IGN)
    with signal_handlers(handlers):
        end = supervise(ticket, lambda: asked() or (STOP if signals else None), _KILL_AFTER_S)
    # The signal counts only if the job ended because of it.
    is_stopped = end.code < 0 or end.code in (EXIT_SIGTERM, EXIT_SIGINT)
    cluster = None
    if signals and is_stopped and end.limit is None and asked() is None:
        when = "at the end of its time on" if signal.SIGUSR2 in signals else "by"
        cluster = f"stopped {when} the cluster; it can go on"
    write_json(folder / END, {"code": end.code, "limit": end.limit, "cluster": cluster})
    return end.code
