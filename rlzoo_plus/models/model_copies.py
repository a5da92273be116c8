"""Resolves NAME@ALIAS and NAME@VERSION to a folder of this machine, with every hash checked."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.models.model_records import (
    FOLDER,
    AliasRecord,
    VersionRecord,
    check_alias,
    check_model_name,
    is_version,
    version_number,
)
from rlzoo_plus.models.model_store import DamagedModelError, ModelStore
from rlzoo_plus.store.cache import cache_of, hash_of
from rlzoo_plus.store.contract import in_parallel

_PATIENCE_S = 600.0


@dataclass(frozen=True)
class ModelName:
    """A model as a user names it: `[STORE/models/]NAME@ALIAS` or `...@VERSION`."""

    url: str | None  # The store; None for the usual one
    name: str
    at: str | None  # An alias, or the number of a version; None if none is named

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Read a name.

        Raises:
            ConfigError: It is none.
        """
        place, _, last = text.rstrip("/").rpartition("/")
        name, separator, at = last.partition("@")
        if place and not place.endswith(f"/{FOLDER}") and place != FOLDER:
            raise ConfigError(
                f"{printable(text)} names no model. Write NAME@production, NAME@3 or "
                f"STORE/{FOLDER}/NAME@production."
            )
        url = (place.removesuffix(FOLDER).rstrip("/") or ".") if place else None
        check_model_name(name)
        if separator and not is_version(at):
            check_alias(at)
        return cls(url, name, at if separator else None)


@dataclass(frozen=True)
class Resolved:
    """A version, and a copy of it on this machine that never changes."""

    name: str  # The model
    store: ModelStore
    version: VersionRecord
    alias: AliasRecord | None  # The record that named the version; None if its number was given
    path: Path  # Laid out like a run directory: config.yaml, best/, and policy.onnx if there is one

    @property
    def onnx(self) -> Path | None:
        """The policy as ONNX, if it was registered with it."""
        return self.path / "policy.onnx" if "policy.onnx" in self.version.files else None


def resolve(text: str) -> Resolved:
    """Return the version that `NAME@ALIAS` or `NAME@VERSION` is now, copied to the cache.

    Args:
        text: The name; with `STORE/models/` before it for another store than that of RLZOO_MODELS.

    Raises:
        ConfigError: There is no such model, version or alias.
        DamagedModelError: A record or a file is not what was registered.
        StoreError: A request failed.
    """
    wanted = ModelName.parse(text)
    if wanted.at is None:
        raise ConfigError(f"{printable(text)} names no version. Write {wanted.name}@production.")
    store, alias = ModelStore(wanted.url), None
    if is_version(wanted.at):
        number = version_number(wanted.at)
    else:
        alias = store.newest(wanted.name, wanted.at)
        number = alias.version
    return resolved_version(store, wanted.name, number, alias)


def resolved_version(
    store: ModelStore, name: str, number: int, alias: AliasRecord | None = None
) -> Resolved:
    """Return a version by its number; see `resolve`."""
    version = store.version(name, number)
    return Resolved(name, store, version, alias, _copied(store, name, version))


def alias_moved(found: Resolved) -> bool:
    """Return whether the alias names something since then: one small request, cheap to repeat.

    Raises:
        StoreError: The request failed; what was found before stays good.
    """
    return found.alias is not None and found.store.has_moved(found.alias, found.name)


def copy_of(text: str) -> Path:
    """Return the folder of `resolve`; for `analysis/find_run.py`."""
    return resolve(text).path


def _copied(store: ModelStore, name: str, version: VersionRecord) -> Path:
    folder = cache_of(store.url) / FOLDER / hash_of(name)
    path = folder / version.content / f"{name}-{version.number}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock", timeout=_PATIENCE_S):
        if not _is_whole(path, version):
            shutil.rmtree(path, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=".copy-", dir=path.parent) as staging:
                fetch(store, name, version, Path(staging) / "whole")
                (Path(staging) / "whole").rename(path)
    return path


def _is_whole(path: Path, version: VersionRecord) -> bool:
    return path.is_dir() and all(
        (path / file).is_file() and _sha256(path / file) == entry.sha256
        for file, entry in version.files.items()
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch(store: ModelStore, name: str, version: VersionRecord, folder: Path) -> None:
    """Bring the files of a version to a new folder, and check each.

    Raises:
        DamagedModelError: One is missing or was changed.
    """
    folder.mkdir(parents=True)
    for file in version.files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
    in_parallel(lambda file: fetch_file(store, name, version, file, folder / file), version.files)


def fetch_file(store: ModelStore, name: str, version: VersionRecord, file: str, path: Path) -> None:
    """Bring one file of a version, and check it; raises what `fetch` raises."""
    entry, object_ = version.files[file], f"{FOLDER}/{name}/content/{version.content}/{file}"
    if not store.store.get_file(object_, path, entry.size):
        raise DamagedModelError(f"{store.url}/{object_} is missing")
    if _sha256(path) != entry.sha256:
        raise DamagedModelError(
            f"{store.url}/{object_} was changed: its hash is not the registered one"
        )
