"""Checks types and keys of configurations; a section seen before is neither checked nor kept twice.

The jobs of a sweep differ in a few values; their equal sections are one object here, which nobody
changes.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import ValidationError

from rlzoo_plus.config.schema import RunConfig, Section

# The other fields are plain values, or lists of them.
_SECTIONS = RunConfig.sections()


def check_types(values: Any) -> RunConfig:
    """Return a complete configuration, equal to what `RunConfig.model_validate` returns.

    Raises:
        ValidationError: Something is missing, unknown, or of the wrong type.
    """
    if not isinstance(values, Mapping):
        return RunConfig.model_validate(values)
    keys = {name: key for name in _SECTIONS if (key := _key_of(values.get(name))) is not None}
    try:
        sections = {name: _section(name, key) for name, key in keys.items()}
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


@lru_cache(4096)
def _section(name: str, data: bytes) -> Section:
    return _SECTIONS[name].model_validate(marshal.loads(data))


def _key_of(section: Any) -> bytes | None:
    """Return what tells a section from others by values, types and order; None if that fails."""
    if not isinstance(section, dict):
        return None
    try:
        # Newer versions depend on which texts are the same object.
        return marshal.dumps(section, 2)
    except ValueError:
        return None
