"""Write what the shell completes: sub-commands and options of each verb, as its help has them.

python scripts/renew_completion.py
"""

import contextlib
import io
import re

from rlzoo_plus.commands.completion import OPTIONS
from rlzoo_plus.commands.verbs import VERBS, main_of

_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_COMMAND = re.compile(r"^    ([a-z][a-z-]*)(?: {2}|$)", re.MULTILINE)
# Others have lines that begin in the same way.
_WITH_COMMANDS = ("sweep", "study", "cloud", "hub", "audit")


def line_of(verb: str) -> str:
    """Return the line of a verb."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main_of(verb)(["--help"])
    commands = _COMMAND.findall(text.getvalue()) if verb in _WITH_COMMANDS else []
    words = [*dict.fromkeys(commands), *sorted(set(_OPTION.findall(text.getvalue())))]
    return f"{verb}: {' '.join(words)}\n"


if __name__ == "__main__":
    OPTIONS.write_text("".join(map(line_of, VERBS)), encoding="utf-8")
