"""What became of a model: where its aliases were, what a rollback returns to, what was damaged."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_copies import fetch_file
from rlzoo_plus.models.model_records import ROLLBACK, AliasRecord
from rlzoo_plus.models.model_store import DamagedModelError, ModelStore
from rlzoo_plus.store.contract import StoreError


def roll_back(
    store: ModelStore, name: str, alias: str, why: str, version: int | None = None
) -> AliasRecord:
    """Let an alias name the version again that it named before; return the new record.

    A rollback after a rollback goes one further back.

    Args:
        store: The registry.
        name: The model.
        alias: The alias.
        why: The reason.
        version: The one to return to, of those before; None for the last that is not retired.

    Raises:
        ConfigError: There is none.
        MovedError: Another one moved the alias meanwhile.
    """
    store.newest(name, alias)
    history, retired = store.history(name, alias), store.retired(name)
    earlier = [number for number in _stack(history)[:-1] if number not in retired]
    if version is not None and version not in earlier:
        known = ", ".join(map(str, earlier)) or "none"
        raise ConfigError(f"{name}@{alias} cannot return to {version}. Before it named: {known}.")
    if not earlier:
        raise ConfigError(f"{name}@{alias} named no other version before, so none is left.")
    target, expected = version or earlier[-1], history[-1].number
    return store.move(name, alias, target, action=ROLLBACK, why=why, expected=expected)


def _stack(history: Sequence[AliasRecord]) -> list[int]:
    """Return the versions to which rollbacks return, the present one last."""
    stack: list[int] = []
    for record in history:
        if record.action == ROLLBACK and record.version in stack:
            while stack[-1] != record.version:
                stack.pop()
        elif stack[-1:] != [record.version]:
            stack.append(record.version)
    return stack


def problems_of(
    store: ModelStore, name: str, versions: Sequence[int], head: str | None = None
) -> list[str]:
    """Check every byte of versions, and all records of aliases; return what is wrong, by file.

    Args:
        store: The registry.
        name: The model.
        versions: Which ones.
        head: A hash that was noted of an alias's newest record, which must still be there.

    Raises:
        ConfigError: There is no such model.
        StoreError: The store cannot be reached.
    """
    found: list[str] = []
    for number in versions:
        try:
            record = store.version(name, number)
        except DamagedModelError as error:
            found.append(str(error))
            continue
        with tempfile.TemporaryDirectory(prefix="rlzoo-verify-") as folder:
            for k, file in enumerate(sorted(record.files)):
                path = Path(folder) / str(k)
                try:
                    fetch_file(store, name, record, file, path)
                except (DamagedModelError, StoreError) as error:
                    found.append(f"version {number}: {error}")
                path.unlink(missing_ok=True)
    hashes = set()
    for alias in store.aliases(name):
        try:
            history = store.history(name, alias)
            hashes |= {record.previous for record in history} | {store.end_of(name, alias)[1]}
            for moved in history[-1:]:
                store.version(name, moved.version)
        except (DamagedModelError, ConfigError) as error:
            found.append(f"{alias}: {error}")
    if head is not None and head not in hashes:
        found.append(f"no alias has the record {head}: its end was cut off, or it was made anew")
    return [printable(text, 1000) for text in dict.fromkeys(found)]
