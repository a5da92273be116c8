"""What the shell offers behind a verb: its options, its own words, and paths."""

from __future__ import annotations

import contextlib
import io
import re
from glob import escape, glob
from importlib import import_module
from pathlib import Path

from rlzoo_plus.commands.dispatch import VERBS, WITH_OVERRIDES

_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
# `sweep` and `study` have verbs of their own: lines of the help that begin with one.
_WORD = re.compile(r"^    ([a-z][a-z-]*)(?: {2}|$)", re.MULTILINE)
_HAS_WORDS = ("sweep", "study")


def choices_of(verb: str, line: str) -> list[str]:
    """Return what may stand where the line ends; empty where Hydra knows more.

    Args:
        verb: One of the verbs.
        line: What was typed behind it.
    """
    *before, last = line.split(" ")
    if last.startswith("-"):
        return sorted(word for word in set(_OPTION.findall(_help_of(verb))) if _fits(word, last))
    if verb in _HAS_WORDS and not any(before):
        return [word for word in _WORD.findall(_help_of(verb)) if _fits(word, last)]
    return [] if verb in WITH_OVERRIDES else _paths(last)


def _help_of(verb: str) -> str:
    """Return the help of a verb; it is the one place that knows its options."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        import_module(VERBS[verb][0]).main(["--help"])
    return text.getvalue()


def _paths(last: str) -> list[str]:
    """Return paths that begin like this; a folder ends in a slash, to be gone into."""
    found = sorted(glob(f"{escape(last)}*"))
    return [f"{path}/" if Path(path).is_dir() else path for path in found if " " not in path]


def _fits(word: str, last: str) -> bool:
    return word.startswith(last)
