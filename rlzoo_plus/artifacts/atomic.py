"""Files and folders that are either there, whole, or not there at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

MANIFEST = "MANIFEST.json"
PREVIOUS = ".previous"


class DamagedFolderError(Exception):
    """A folder's files do not match its manifest."""


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace a file in one step: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    _write_synced(temporary, data.encode() if isinstance(data, str) else data)
    os.replace(temporary, path)
    _sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step."""
    write_atomic(path, json.dumps(value, indent=2) + "\n")


def write_folder(path: Path, files: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Write a folder with a manifest, in one step; an older folder of that name is replaced.

    Args:
        path: The folder.
        files: Content by file name, without sub-folders.
        about: What the manifest says besides names, sizes and SHA-256 hashes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, data in files.items():
        _write_synced(temporary / name, data)
    # Manifest last: what a killed process leaves must look incomplete.
    _write_synced(temporary / MANIFEST, _manifest(files, about))
    _sync_folder(temporary)
    _swap_in(temporary, path)


def read_folder(path: Path) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Read a folder written by `write_folder` and check every byte of it.

    Returns:
        The files' contents by name, and what the manifest says about them.

    Raises:
        DamagedFolderError: The manifest is missing, or a file is not the one it describes.
    """
    if not path.exists() and path.with_name(path.name + PREVIOUS).is_dir():
        # A writer died between its two renames; the folder before is whole.
        path = path.with_name(path.name + PREVIOUS)
    manifest = _read_manifest(path)
    files = {}
    for name, entry in manifest["files"].items():
        if Path(name).name != name:
            raise DamagedFolderError(f"{path}: the manifest names {name!r}, outside the folder")
        file = path / name
        if file.is_symlink() or not file.is_file():
            raise DamagedFolderError(f"{path}: {name} is missing")
        data = file.read_bytes()
        if len(data) != entry["size"] or hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise DamagedFolderError(f"{path}: {name} was changed or cut short")
        files[name] = data
    return files, manifest["about"]


def _manifest(files: Mapping[str, bytes], about: Mapping[str, Any]) -> bytes:
    body = {
        "format": 1,
        "about": dict(about),
        "files": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        },
    }
    return json.dumps({**body, "sha256": _digest(body)}, indent=2).encode()


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / MANIFEST).read_bytes())
        claimed = manifest.pop("sha256")
        whole = claimed == _digest(manifest) and manifest["format"] == 1
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedFolderError(f"{path}: no readable {MANIFEST}") from error
    if not whole:
        raise DamagedFolderError(f"{path}: {MANIFEST} was changed, or is of a newer format")
    return dict(manifest)


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _swap_in(temporary: Path, path: Path) -> None:
    previous = path.with_name(path.name + PREVIOUS)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        os.rename(path, previous)
    os.rename(temporary, path)
    _sync_folder(path.parent)
    shutil.rmtree(previous, ignore_errors=True)


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
