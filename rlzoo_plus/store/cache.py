"""What is kept here of stores: light files of all runs, whole runs, and which sweep went where."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from rlzoo_plus.artifacts.atomic import MOST_FILES, write_json
from rlzoo_plus.artifacts.untrusted import printable, read_json, read_plain_file
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import ArtifactStore, is_name, open_store
from rlzoo_plus.store.mirror import RUNS
from rlzoo_plus.store.pull import get_all, pull_run

# Enough to list a run and to draw its curve.
LIGHT_FILES = ("config.yaml", "status.json", "result.json", "evaluations.jsonl", "provenance.json")
LARGEST_LIGHT_BYTES = 2**27
_KNOWN = ".tags.json"
_SUBMITTED = "submitted"
_LARGEST_CACHED_BYTES = 2**30
_PATIENCE_S = 600.0


def split_run_url(url: str) -> tuple[str, str]:
    """Return store and name of the run at `STORE/runs/NAME`."""
    store, separator, run = url.rstrip("/").partition(f"/{RUNS}/")
    if not separator or not is_name(run):
        raise ConfigError(
            f"{printable(url)} names no run. Write STORE/{RUNS}/NAME, as `rlzoo-plus runs STORE` "
            "prints it."
        )
    return store, run


def mirror_light_files(store: ArtifactStore) -> Path:
    """Bring the light files of all runs of a store here, and return their folder.

    Only files that changed since the last call are downloaded.
    """
    folder = cache_of(store.url) / "light"
    with _lock(folder):
        found = {
            entry.name: entry
            for entry in store.list(f"{RUNS}/")
            if entry.name.rpartition("/")[2] in LIGHT_FILES and entry.size <= LARGEST_LIGHT_BYTES
        }
        # No file can be where another one needs a folder.
        found = {
            n: e
            for n, e in found.items()
            if found.keys().isdisjoint(map(str, PurePosixPath(n).parents))
        }
        known = read_cached(folder / _KNOWN)
        for name in set(known) - set(found):
            if is_name(name):
                (folder / name).unlink(missing_ok=True)
        _replace(store, folder, (n for n, entry in found.items() if known.get(n) != entry.tag))
        write_json(folder / _KNOWN, {entry.name: entry.tag for entry in found.values()})
        (folder / RUNS).mkdir(exist_ok=True)
    return folder / RUNS


def cached_run(url: str) -> Path:
    """Bring a run's files without its checkpoints here, unless they are here; return its folder.

    Raises:
        ConfigError: The URL is none of the kind `STORE/runs/NAME`.
        StoreError: There is no such run, or a request failed.
        DamagedFolderError: A policy in the store is damaged.
    """
    store_url, run = split_run_url(url)
    return copy_of_run(open_store(store_url), run)


def copy_of_run(store: ArtifactStore, run: str) -> Path:
    """Do what `cached_run` does for the run of this name in a store."""
    listed = islice(store.list(f"{RUNS}/{run}/"), MOST_FILES + 1)
    tags = {entry.name: entry.tag for entry in listed}
    folder = cache_of(store.url) / "whole" / hash_of(run)
    path = folder / hash_of(json.dumps(tags)) / run.rpartition("/")[2]
    with _lock(folder):
        if not path.is_dir():
            for old in folder.glob("[!.]*"):
                shutil.rmtree(old, ignore_errors=True)
            pull_run(store, run, path, state=False)
    return path


def remember_store(sweep: Path, url: str) -> None:
    """Remember the `STORE/SWEEP` that a sweep was submitted to, by the directory it has here."""
    known = url if "://" in url else os.path.abspath(url)
    write_json(_submitted(sweep), {"sweep": os.path.abspath(sweep), "url": known})


def store_of(sweep: Path) -> str | None:
    """Return the `STORE/SWEEP` that `remember_store` got for a sweep, None if it got none."""
    known = read_json(_submitted(sweep))
    url = known.get("url") if known.get("sweep") == os.path.abspath(sweep) else None
    return url if isinstance(url, str) else None


def forget_store(sweep: Path) -> None:
    """Take a sweep as one of this machine again."""
    _submitted(sweep).unlink(missing_ok=True)


def _submitted(sweep: Path) -> Path:
    # Not in the sweep's directory: it may come from somebody else, and would name their store.
    return cache_base() / _SUBMITTED / f"{hash_of(os.path.abspath(sweep))}.json"


def read_cached(file: Path) -> dict[str, Any]:
    """Return a JSON mapping of the cache, an empty one if it is missing or damaged."""
    try:
        known = json.loads(read_plain_file(file, _LARGEST_CACHED_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}


def _lock(folder: Path) -> FileLock:
    folder.mkdir(parents=True, exist_ok=True)
    return FileLock(folder / ".lock", timeout=_PATIENCE_S)


def hash_of(text: str) -> str:
    """Return a name for a text, for files of the cache."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _replace(store: ArtifactStore, folder: Path, names: Iterable[str]) -> None:
    """Download objects below a folder; each file changes in one step."""
    new = {name: (folder / name).with_name(f".{name.rpartition('/')[2]}.new") for name in names}
    for path in new.values():
        path.unlink(missing_ok=True)
    try:
        get_all(store, new, LARGEST_LIGHT_BYTES)
        for name, path in new.items():
            if (folder / name).is_dir():
                shutil.rmtree(folder / name)
            os.replace(path, folder / name)
    finally:
        for path in new.values():
            path.unlink(missing_ok=True)


def cache_of(url: str) -> Path:
    """Return the folder of this machine that keeps copies of a store."""
    return cache_base() / hash_of(url if "://" in url else os.path.abspath(url))


def cache_base() -> Path:
    """Return this package's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rlzoo_plus"
