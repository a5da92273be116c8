"""Errors that a user sees as one text, their exit codes, and did-you-mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher, get_close_matches

# How many near names are shown, and up to how many are all shown.
NEAREST, FEW = 3, 12
# How like a mistyped name is what was meant, from 0 to 1.
_TYPING_ERROR = 0.8
HELP = "rlzoo-plus train --help all"
# Exit codes of commands and jobs: a mistake of the user's, and a run that failed.
USER_ERROR, RUN_ERROR = 2, 1
# Exit codes of a job that failed, that ended early on request, and whose directory another process
# trains in; exit codes of a job or a command that a signal stopped.
EXIT_FAILED, EXIT_ENDED, EXIT_BUSY = 1, 74, 73
EXIT_SIGINT, EXIT_SIGTERM = 130, 75


class ConfigError(ValueError):
    """A value, the rule it breaks and the fix; shown without a traceback."""


class RunError(RuntimeError):
    """Why a run had to end that was configured correctly; shown without a traceback.

    Everything that the run saved before stays, and it can be resumed.
    """


class Mistakes:
    """The mistakes that several checks have found, to be told together."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        """Add a mistake."""
        self._texts.append(text)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Add the `ConfigError` of a check inside, and go on after it."""
        try:
            yield
        except ConfigError as error:
            self.add(str(error))

    def tell(self) -> None:
        """Raise one `ConfigError` with all mistakes, if there are any."""
        if self._texts:
            raise ConfigError("\n".join(dict.fromkeys(self._texts)))


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when nothing is near."""
    found = _nearest(name, [str(candidate) for candidate in known], 1, cutoff=0.6)
    return found[0] if found else None


def _is_typing_error(name: str, near: str) -> bool:
    """Return whether the last part of a name is nearly that of another one in the same section."""
    (section, _, last), (there, _, right) = name.rpartition("."), near.rpartition(".")
    return section == there and SequenceMatcher(None, last, right).ratio() >= _TYPING_ERROR


def unknown_name(
    what: str, name: str, known: Iterable[str], listed_by: str = "", meant: str | None = None
) -> str:
    """Describe an unknown name with the nearest ones that exist; with all if they are few.

    `what` is its kind, e.g. `wrapper`; the command `listed_by` lists all of them; `meant` is what
    to suggest in place of the nearest.
    """
    names = sorted({str(candidate) for candidate in known})
    near = closest(name, names)
    suggestion = near if near and _is_typing_error(name, near) else meant or near
    hint = "" if suggestion is None else f" Did you mean {suggestion!r}?"
    if len(names) <= FEW:
        return f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}."
    others = [other for other in _nearest(name, names, NEAREST, cutoff=0.0) if other != suggestion]
    label = "Nearest" if suggestion is None else "Also near"
    shown = ", ".join(others[: NEAREST - (suggestion is not None)])
    how = f" All {len(names)}: `{listed_by}`." if listed_by else f" There are {len(names)}."
    return f"unknown {what} {name!r}.{hint} {label}: {shown}.{how}"


def _nearest(name: str, names: list[str], count: int, cutoff: float) -> list[str]:
    by_lower = {candidate.lower(): candidate for candidate in names}
    near = get_close_matches(name.lower(), list(by_lower), n=count, cutoff=cutoff)
    return [by_lower[match] for match in near]
