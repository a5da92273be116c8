"""The beginning of a study, which several may try at once: what it is about is said once."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import Direction
from rlzoo_plus.tuning.postgres import patiently
from rlzoo_plus.tuning.stored import ABOUT, PATIENCE_S, StoredStudy

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

# Whoever makes a study says at once what it is about.
_ABOUT_PATIENCE_S = 5.0


def create_study(name: str, storage: BaseStorage, directions: Sequence[Direction]) -> bool:
    """Make a study; return False if there is one of that name."""
    import optuna

    try:
        optuna.create_study(study_name=name, storage=storage, directions=list(directions))
    except optuna.exceptions.DuplicatedStudyError:
        return False
    return True


def settle(study: StoredStudy, about: Mapping[str, Any], created: bool) -> None:
    """Say what a study is about, or see whether it is about the same.

    Args:
        study: The study.
        about: What must stay the same for as long as it goes on.
        created: Whether we have made it, and so are the one to say it.

    Raises:
        ConfigError: It is about something else.
    """
    # As a storage gives it back.
    wanted = json.loads(json.dumps(dict(about)))
    end = time.monotonic() + _ABOUT_PATIENCE_S
    while not created and not _is_said(study) and time.monotonic() < end:
        time.sleep(0.05)
    # Whoever made it may have died before it could say so.
    if created or not _is_said(study):
        patiently(lambda: study.optuna_study.set_user_attr(ABOUT, wanted), PATIENCE_S)
    differences = _differing(study.about, wanted)
    if differences:
        raise ConfigError(
            f"the study {study.name!r} was begun with {'; '.join(differences)}. "
            "Go on with what it was begun with, or take hpo.study=NAME for a new one."
        )


def _is_said(study: StoredStudy) -> bool:
    return bool(patiently(lambda: ABOUT in study.optuna_study.user_attrs, PATIENCE_S))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        "{}={}, not {}".format(key, *_only_different(old.get(key), new.get(key)))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _only_different(old: Any, new: Any) -> tuple[str, str]:
    """Show two values; of two lists only what the other one has not, unless that is nothing."""
    if isinstance(old, list) and isinstance(new, list):
        mine, yours = [x for x in old if x not in new], [x for x in new if x not in old]
        if mine or yours:
            old, new = mine, yours
    return _short(old), _short(new)


def _short(value: Any) -> str:
    return printable(json.dumps(value), 120)
