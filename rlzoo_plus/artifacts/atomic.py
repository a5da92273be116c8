"""Writes files and folders atomically: a reader finds each complete, or not at all."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)

MANIFEST = "MANIFEST.json"
PREVIOUS = ".previous"
MOST_FILES = 10_000


class DamagedFolderError(Exception):
    """A folder's files do not match its manifest; the text is safe to print."""

    def __init__(self, reason: object) -> None:
        super().__init__(printable(reason))


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replace a file in one step: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    write_synced(temporary, data.encode() if isinstance(data, str) else data)
    os.replace(temporary, path)
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file in one step."""
    write_atomic(path, json.dumps(value, indent=2) + "\n")


def write_folder(path: Path, files: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Write a folder with a manifest, in one step; an older folder of that name is replaced.

    Args:
        path: The folder.
        files: Content by file name, without sub-folders.
        about: Entries of the manifest besides names, sizes and SHA-256 hashes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    listed = {}
    for name, data in files.items():
        write_synced(temporary / name, data)
        listed[name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    body = {"format": 1, "about": finite(about), "files": listed}
    # Manifest last: what a killed process leaves must look incomplete.
    manifest = json.dumps({**body, "sha256": _digest(body)}, indent=2).encode()
    write_synced(temporary / MANIFEST, manifest)
    sync_folder(temporary)
    previous = path.with_name(path.name + PREVIOUS)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)
        os.rename(path, previous)
    os.rename(temporary, path)
    sync_folder(path.parent)
    shutil.rmtree(previous, ignore_errors=True)


def read_folder(
    path: Path, largest: Mapping[str, int] | None = None
) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Read a folder written by `write_folder` and check every byte of it.

    Args:
        path: The folder.
        largest: The files it must hold, and no other, with the most bytes of each; None for any.

    Returns:
        The files' contents by name, and what the manifest says about them.

    Raises:
        DamagedFolderError: The manifest is missing, or a file is not the one it describes.
    """
    path, entries, about = _read_manifest(path)
    if largest is not None and entries.keys() != largest.keys():
        names = ", ".join(sorted(largest))
        raise DamagedFolderError(f"{path}: the manifest must list {names}, and no other file")
    files = {}
    for name, (size, sha256) in entries.items():
        if largest is not None and size > largest[name]:
            raise DamagedFolderError(
                f"{path}: {name} has {size} bytes, more than the {largest[name]} allowed"
            )
        try:
            data = read_plain_file(path / name, size)
            if len(data) != size or hashlib.sha256(data).hexdigest() != sha256:
                raise ValueError("does not match the manifest")
        except OSError as error:
            raise DamagedFolderError(f"{path}: {name} is missing") from error
        except ValueError as error:
            reason = f"{name} was changed or cut short: it {error}"
            raise DamagedFolderError(f"{path}: {reason}") from error
        files[name] = data
    return files, about


def read_about(path: Path) -> dict[str, Any]:
    """Read the entries `about` of a folder's manifest; its files are not read.

    Raises:
        DamagedFolderError: The manifest is missing or was changed.
    """
    return _read_manifest(path)[2]


def map_leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested plain data with a function applied to everything that is no container."""
    if isinstance(value, Mapping):
        return {key: map_leaves(item, change) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(map_leaves(item, change) for item in value)
    if isinstance(value, (list, deque)):
        return [map_leaves(item, change) for item in value]
    return change(value)


def finite(value: Any) -> Any:
    """Return plain data with NaN and infinities, which JSON does not know, replaced by null."""
    return map_leaves(value, lambda v: None if isinstance(v, float) and not math.isfinite(v) else v)


def _read_manifest(path: Path) -> tuple[Path, dict[str, tuple[int, str]], dict[str, Any]]:
    """Return the intact folder, size and hash by file name, and the entries `about`."""
    previous = path.with_name(path.name + PREVIOUS)
    if not path.exists() and previous.is_dir():
        # A writer that was killed between its two renames left the earlier folder intact.
        path = previous
    try:
        manifest = parse_json(read_plain_file(path / MANIFEST, LARGEST_MANIFEST_BYTES))
        if not isinstance(manifest, dict):
            raise ValueError("it is not a mapping")
        claimed = manifest.pop("sha256")
        is_whole = claimed == _digest(manifest) and manifest["format"] == 1
    except (OSError, ValueError, KeyError) as error:
        raise DamagedFolderError(f"{path}: no readable {MANIFEST} ({one_line(error)})") from error
    if not is_whole:
        raise DamagedFolderError(f"{path}: {MANIFEST} was changed, or is of a newer format")
    listed, about = manifest.get("files"), manifest.get("about")
    if not isinstance(listed, dict) or not isinstance(about, dict):
        raise DamagedFolderError(f"{path}: {MANIFEST} lists no files")
    if len(listed) > MOST_FILES:
        raise DamagedFolderError(f"{path}: {MANIFEST} lists more than {MOST_FILES} files")
    entries = {}
    for name, entry in listed.items():
        if Path(name).name != name or any(c in name for c in "/\\:\0") or name in ("", "..", "."):
            raise DamagedFolderError(f"{path}: the manifest names {name!r}, outside the folder")
        match entry:
            # A size of True would pass for 1.
            case {"size": int(size), "sha256": str(sha256)} if size >= 0 and type(size) is int:
                entries[name] = (size, sha256)
            case _:
                raise DamagedFolderError(f"{path}: the manifest gives {name!r} no size or hash")
    return path, entries, about


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file durably; a link of that name is replaced, not followed."""
    path.unlink(missing_ok=True)
    try:
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        # Of a full disk: what is left is of no use.
        path.unlink(missing_ok=True)
        raise


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable; Windows has no such call and needs none."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
