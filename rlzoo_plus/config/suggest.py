"""Did-you-mean for every name a user can misspell."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name most like `name`, or None when nothing is near."""
    names = [str(candidate) for candidate in known]
    by_lower = {candidate.lower(): candidate for candidate in names}
    matches = get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Describe an unknown name with a suggestion and the names that exist.

    Args:
        what: What the name stands for, e.g. `algo.hyperparams key`.
        name: What the user wrote.
        known: The names that would have been right.
    """
    names = sorted({str(candidate) for candidate in known})
    suggestion = closest(name, names)
    hint = f" Did you mean {suggestion!r}?" if suggestion else ""
    listed = ", ".join(names) if len(names) <= 40 else ", ".join(names[:40]) + ", ..."
    return f"unknown {what} {name!r}.{hint} Known: {listed}."
