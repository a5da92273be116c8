"""The entries of `hpo.space` by dotted key, whether a file or the command line wrote them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.suggest import unknown_name

PARTS = ("space", "when", "at_most")


def by_key(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a space by the keys that they are for.

    In a file a key is one word, dots and all. Hydra takes `hpo.space.network.net_arch=null` on a
    command line for a mapping in a mapping; such an entry replaces the file's.

    Raises:
        ConfigError: An entry is taken out that is not there.
    """
    from omegaconf import DictConfig, OmegaConf

    if isinstance(entries, DictConfig):
        entries = OmegaConf.to_container(entries, resolve=True)  # type: ignore[assignment]
    found: dict[str, Any] = {}
    typed: dict[str, Any] = {}
    for key, entry in entries.items():
        if _is_nested(entry):
            typed.update(_leaves(entry, str(key)))
        else:
            found[str(key)] = entry
    for key, entry in typed.items():
        if entry is None and key not in found:
            raise ConfigError(f"hpo.space.{key}=null: {unknown_name('key', key, list(found))}")
        found[key] = entry
    return found


def _is_nested(entry: Any) -> bool:
    return isinstance(entry, Mapping) and bool(entry) and not set(entry) & set(PARTS)


def _leaves(entry: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in entry.items():
        if _is_nested(value):
            yield from _leaves(value, f"{prefix}.{key}")
        else:
            yield f"{prefix}.{key}", value
