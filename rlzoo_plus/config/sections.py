"""Checks types and keys of configurations; a section seen before is neither checked nor kept twice.

The jobs of a sweep differ in a few values; their equal sections are one object here. A process that
trains takes its configuration from `RunConfig.model_validate`, which shares nothing.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydantic import ValidationError

from rlzoo_plus.config.schema import RunConfig, Section

# A sweep over values of a section makes one for each; the oldest goes first.
_MOST_KEPT = 4096
# The others are plain values, or lists of them.
_SECTIONS = (
    *(
        "env",
        "algo",
        "network",
        "infra",
        "hpo",
        "tracker",
        "normalize",
        "init",
        "eval",
        "checkpoint",
    ),
    *("checkpoint", "stop", "log", "report", "export"),
)

_Key = tuple[str, bytes]
_kept: dict[_Key, Section] = {}


def check_types(values: Any) -> RunConfig:
    """Return a complete configuration, equal to what `RunConfig.model_validate` returns.

    Args:
        values: Nested plain data.

    Raises:
        ValidationError: Something is missing, unknown, or of the wrong type.
    """
    if not isinstance(values, Mapping):
        return RunConfig.model_validate(values)
    keys = {name: key for name in _SECTIONS if (key := _key_of(name, values.get(name)))}
    known = {name: _kept[key] for name, key in keys.items() if key in _kept}
    # What is kept must not change with what was given.
    own = {name: deepcopy(values[name]) for name in keys.keys() - known.keys()}
    try:
        config = RunConfig.model_validate({**values, **own, **known})
    except ValidationError:
        # It tells of what was given.
        return RunConfig.model_validate(values)
    for name in own:
        while len(_kept) >= _MOST_KEPT:
            _kept.pop(next(iter(_kept)))
        _kept[keys[name]] = getattr(config, name)
    return config


class SharedSections:
    """Lets configurations of plain data share their equal sections, as those of a long ledger."""

    def __init__(self) -> None:
        self._known: dict[_Key, Any] = {}

    def share(self, config: Any) -> Any:
        """Return an equal configuration; what is none is returned as it is."""
        if not isinstance(config, dict):
            return config
        return {name: self._shared(str(name), value) for name, value in config.items()}

    def _shared(self, name: str, section: Any) -> Any:
        key = _key_of(name, section)
        return section if key is None else self._known.setdefault(key, section)


def _key_of(name: str, section: Any) -> _Key | None:
    """Return what tells a section from others by values, types and order; None if it is unsure."""
    if not isinstance(section, dict):
        return None
    try:
        # Newer versions depend on which texts are the same object.
        return name, marshal.dumps(section, 2)
    except ValueError:
        return None
