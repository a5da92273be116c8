"""The terminal of the commands: one console for tables, bars and log lines."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.secrets import redact

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

_QUIET = ("matplotlib", "PIL", "gymnasium", "urllib3", "tensorboard", "git")


def make_console(*, stderr: bool = False) -> Console:
    """Return the console; when the output is a file, lines are never wrapped."""
    from rlzoo_plus.commands.typed import console_class

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    console: Console = (
        console_class()(highlight=False, stderr=stderr)
        if is_terminal
        else console_class()(highlight=False, width=200, soft_wrap=True, stderr=stderr)
    )
    return console


def set_up_logging(level: str, console: Console) -> None:
    """Send log lines of this package to the console; warnings and errors say what they are.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        console: Shares the terminal with a progress bar without tearing it.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_ConsoleHandler(console))
    root.setLevel(logging.WARNING)
    logging.getLogger("rlzoo_plus").setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = redact(self.format(record))
            if record.levelno >= logging.WARNING:
                text = f"{record.levelname.lower()}: {text}"
            self.console.print(text, markup=False)
        except Exception:
            self.handleError(record)


def start_live(console: Console) -> Live:
    """Start a picture that is drawn again in its place, and is gone in the end."""
    from rich.live import Live

    live = Live(console=console, auto_refresh=False, transient=True)
    live.start()
    return live
