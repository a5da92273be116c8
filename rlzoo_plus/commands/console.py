"""The terminal of the commands: one console for tables, bars and log lines."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


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
