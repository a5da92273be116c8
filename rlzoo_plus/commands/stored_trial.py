"""`train study=S trial=N`: the command line of a study's trial in place of these two words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.harmless import refuse_foreign

_NAMES = ("study", "trial")
_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w./@]*)=(?P<value>.*)", re.DOTALL)


def with_trial(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the trial's own words; what stands beside them wins.

    Raises:
        ConfigError: There is no such trial, or its words import code and are not trusted.
    """
    named = {key: value for key, value in _pairs(arguments) if key in _NAMES}
    if set(named) != set(_NAMES):
        raise ConfigError("study=S and trial=N belong together. `rlzoo-plus study show S` lists N.")
    rest = [word for word in arguments if _key(word) not in _NAMES and word != "--trust"]
    trust = "--trust" in arguments
    stored = _stored(named["study"], _number(named["trial"]), trust=trust)
    refuse_foreign(stored, f"trial {named['trial']} of {named['study']}", trust=trust)
    given = {_key(word) for word in rest}
    return [*rest, *(word for word in stored if _key(word) not in given)]


def _stored(study: str, number: int, *, trust: bool) -> list[str]:
    from rlzoo_plus.tuning.study_file import open_stored
    from rlzoo_plus.tuning.trials import TrialState

    stored = open_stored(study, trust=trust)
    views = {view.number: view for view in stored.study.trials()}
    if number not in views:
        last = max(views, default=None)
        raise ConfigError(
            f"study={study} has no trial {number}"
            + ("." if last is None else f": its trials are 0 to {last}.")
        )
    view = views[number]
    words = view.overrides
    if view.state in (TrialState.WAITING, TrialState.INVALID):
        raise ConfigError(f"study={study}: trial {number} has no values that could be trained.")
    drawn = {_key(word) for word in words}
    # Where the study ran is no part of what the trial was.
    base = [w for w in stored.base if _key(w) not in drawn and _key(w).split(".")[0] != "infra"]
    return [*stored.config_options, *base, *words, *_threads(base)]


def _threads(words: Sequence[str]) -> list[str]:
    """Fix the threads, as every trial does: they change the last bits of a result."""
    return [] if any(_key(word) == "num_threads" for word in words) else ["num_threads=1"]


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"trial={text} must be the number of one trial, from 0.")
    return int(text)


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    matches = [_OVERRIDE.fullmatch(word) for word in arguments]
    return [(match["key"], match["value"]) for match in matches if match]


def _key(word: str) -> str:
    match = _OVERRIDE.fullmatch(word)
    return match["key"] if match else word
