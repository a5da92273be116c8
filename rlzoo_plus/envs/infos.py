"""Copies of what an environment returns, for those that keep it; this module needs no torch."""

from __future__ import annotations

from copy import deepcopy
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.errors import RunError
from rlzoo_plus.registry import where_raised

# Nobody can change what these are.
_VALUES = frozenset({bool, int, float, str, type(None), np.bool_, np.int64, np.float32, np.float64})


def independent(info: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of an info that shares nothing that can be changed.

    Raises:
        RunError: An entry cannot be copied.
    """
    try:
        return {key: v if type(v) in _VALUES else copy_of(v) for key, v in info.items()}
    # User code can raise anything.
    except Exception as error:
        raise RunError(why_not_shared(info) or where_raised(error)) from error


def why_not_shared(info: dict[str, Any], *, is_sent: bool = False) -> str | None:
    """Return which entry of an info cannot be copied, or sent by a process; None if all can."""
    ways: list[tuple[str, Any]] = [("copied", copy_of)]
    ways += [("pickled for vec_env=subproc", ForkingPickler.dumps)] if is_sent else []
    for key, value in info.items():
        for way, share in ways:
            try:
                share(value)
            # Its class may raise anything.
            except Exception as error:
                fix = "Leave it out" if share is copy_of else "Leave it out, or set vec_env=auto"
                kind = type(value).__name__
                return f"info[{key!r}], a {kind}, cannot be {way}: {one_line(error)}. {fix}."
    return None


def copy_of(value: Any) -> Any:
    """Return a copy of a value that shares nothing with it."""
    kind = type(value)
    if kind is np.ndarray and value.dtype.kind != "O":
        return value.copy(order="K")
    if kind is dict and all(type(item) in _VALUES for item in value.values()):
        return dict(value)
    return deepcopy(value)
