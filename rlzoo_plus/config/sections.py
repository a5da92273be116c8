"""Checks types and keys of configurations; a section seen before is neither checked nor kept twice.

The jobs of a sweep differ in a few values; their equal sections are one object here, which nobody
changes.
"""

from __future__ import annotations

import copy
import marshal
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.section import Section

# The other fields are plain values, or lists of them.
_SECTIONS = RunConfig.sections()
_MOST_KNOWN = 4096
_known: dict[tuple[str, bytes], Section] = {}


def check_types(values: Any) -> RunConfig:
    """Return a complete configuration, equal to what `RunConfig.model_validate` returns.

    Raises:
        ValidationError: Something is missing, unknown, or of the wrong type.
    """
    if not isinstance(values, Mapping):
        return RunConfig.model_validate(values)
    try:
        sections = {name: _section(name, values[name]) for name in _SECTIONS if name in values}
        return RunConfig.model_validate({**values, **sections})
    except ValidationError:
        # Its errors name the keys of the whole configuration.
        return RunConfig.model_validate(values)


class SharedSections:
    """Lets configurations of plain data share their equal sections, as those of a long ledger."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Any] = {}

    def share(self, config: Any) -> Any:
        """Return an equal configuration that shares its sections; other data as it is."""
        if not isinstance(config, dict):
            return config
        shared = dict(config)
        for name, section in config.items():
            if (key := _key_of(section)) is not None:
                shared[name] = self._known.setdefault((str(name), key), section)
        return shared


def _section(name: str, values: Any) -> Any:
    """Return a section, checked; what is none as it is."""
    key = _key_of(values)
    if key is None:
        return values
    if (name, key) not in _known:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        # A copy: what the caller changes later changes no section.
        _known[name, key] = _SECTIONS[name].model_validate(copy.deepcopy(values))
    return _known[name, key]


def _key_of(section: Any) -> bytes | None:
    """Return what tells a section from others by values, types and order; None if that fails."""
    if not isinstance(section, dict):
        return None
    try:
        # Newer versions depend on which texts are the same object.
        return marshal.dumps(section, 2)
    except ValueError:
        return None
