"""Code of users in a store: what workers need of it, as zips that are named by their hash."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from rlzoo_plus.artifacts.atomic import MOST_FILES, DamagedFolderError
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.provenance import run_git
from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import ArtifactStore, StoreError, is_name
from rlzoo_plus.store.zips import unzip, zip_files

FOLDER = "code"
LARGEST_CODE_BYTES = 50_000_000
_LARGEST_ZIP_BYTES = LARGEST_CODE_BYTES + 2_000 * MOST_FILES
_KEY = "infra.code"
_SHA = re.compile(r"[0-9a-f]{64}")
_MOST_SHOWN = 3
log = logging.getLogger(__name__)


def send_code(store: ArtifactStore, sweep: str, paths: Sequence[str | Path]) -> str:
    """Send files and folders below the working directory, unless they are there already.

    Of a folder, what git tracks is sent, as it is now; outside of a repository, all plain files.
    Hidden files and compiled modules stay. One note names what has changed since the last commit,
    and what is not sent because git does not track it. Paths are relative to the working directory,
    as their modules are imported from there.

    Returns:
        The hash of the zip, for `fetch_code`; the same files have the same one.
    """
    data = zip_files(_read(sorted(set(islice(_files_of(paths), MOST_FILES + 1)))))
    sha = hashlib.sha256(data).hexdigest()
    name = _object(sweep, sha)
    if all(entry.name != name for entry in store.list(f"{FOLDER}/{sweep}/")):
        store.put(name, data)
    return sha


def fetch_code(store: ArtifactStore, sweep: str, sha: str, folder: Path) -> Path:
    """Bring the code of a sweep here, unless it is here; return the folder to import it from.

    Nothing of it is executed. Several workers may share the folder: code appears when it is whole.
    `sha`, which `send_code` returned, is checked, as somebody else may have written it; the code of
    each has a folder of its own.

    Raises:
        StoreError: It is not in the store, or a request failed.
        DamagedFolderError: The zip has another hash, or is not one as `send_code` makes it.
    """
    if not isinstance(sha, str) or not _SHA.fullmatch(sha):
        raise DamagedFolderError(f"{printable(sha)!r} is no hash of a zip of code")
    path = folder / sha
    if path.is_dir():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    name = _object(sweep, sha)
    with tempfile.TemporaryDirectory(prefix=".code-", dir=folder) as staging:
        zipped, whole = Path(staging) / "code.zip", Path(staging) / "code"
        if not store.get_file(name, zipped, _LARGEST_ZIP_BYTES):
            raise StoreError(f"{store.url} has no {name}. Submit the jobs again with {_KEY}")
        with zipped.open("rb") as file:
            is_it = hashlib.file_digest(file, "sha256").hexdigest() == sha
        if not is_it:
            raise DamagedFolderError(f"{store.url}/{name} is not what its name says")
        unzip(zipped, whole, nested=True)
        try:
            whole.rename(path)
        except OSError:
            # Another worker was faster.
            if not path.is_dir():
                raise
    return path


def _object(sweep: str, sha: str) -> str:
    return f"{FOLDER}/{sweep}/{sha}.zip"


def _files_of(paths: Sequence[str | Path]) -> Iterator[str]:
    """Yield the files below paths by their names below the working directory."""
    here = Path.cwd()
    changed: list[str] = []
    for given in paths:
        path = Path(os.path.abspath(given))
        if not path.is_relative_to(here):
            raise ConfigError(
                f"{_KEY}: {printable(given)} is not below the working directory, "
                f"{printable(here)}. Start the command in a folder that has all of the code."
            )
        check_inside(here, path)
        if not path.exists():
            raise ConfigError(f"{_KEY}: {printable(given)} does not exist.")
        tracked = _tracked(path)
        names = list(islice(_walk(path), MOST_FILES + 1)) if tracked is None else tracked
        if not names:
            why = "holds no file" if tracked is None else "has no file that git tracks (git add)"
            raise ConfigError(f"{_KEY}: {printable(given)} {why}, so nothing would be sent.")
        root = path if path.is_dir() else path.parent
        yield from ((root / name).relative_to(here).as_posix() for name in names)
        changed += [] if tracked is None else _changes(path)
    if changed:
        log.warning("%s: %s", _KEY, printable("; ".join(changed)))


def _tracked(path: Path) -> list[str] | None:
    """Return the files that git tracks below a path, None outside of a repository."""
    listed = _git(path, "ls-files", "-z", "--recurse-submodules")
    if listed is None:
        return None
    folder = path if path.is_dir() else path.parent
    # A removed file may be in the index still.
    return [n for n in listed.split("\0") if n and _is_code(n) and os.path.lexists(folder / n)]


def _changes(path: Path) -> Iterator[str]:
    """Yield what differs from the last commit."""
    lines = (_git(path, "status", "--porcelain") or "").splitlines()
    for note, is_new in (("sent with uncommitted changes", False), ("not tracked, so left", True)):
        of_kind = [line[3:].strip('"') for line in lines if line.startswith("??") == is_new]
        names = [name for name in of_kind if _is_code(name)]
        if names:
            more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
            yield f"{note}: {', '.join(names[:_MOST_SHOWN])}{more}"


def _git(path: Path, *arguments: str) -> str | None:
    where = "." if path.is_dir() else path.name
    return run_git(path, "--literal-pathspecs", *arguments, "--", where)


def _walk(path: Path) -> Iterator[str]:
    if not path.is_dir():
        yield path.name
        return
    for folder, folders, files in os.walk(path):
        here = Path(folder).relative_to(path)
        folders[:] = [name for name in folders if _is_code(name)]
        # `os.walk` lists a link to a folder among folders; it is refused as a file is.
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        yield from (str(here / name) for name in [*files, *links] if _is_code(name))


def _is_code(name: str) -> bool:
    parts = Path(name).parts
    hidden = any(part.startswith(".") or part == "__pycache__" for part in parts)
    return not hidden and not name.endswith(".pyc")


def _read(names: Sequence[str]) -> dict[str, bytes]:
    here = Path.cwd()
    if len(names) > MOST_FILES:
        raise ConfigError(f"{_KEY}: more than {MOST_FILES:,} files. Name fewer folders.")
    sizes = {}
    for name in names:
        if not is_name(name):
            raise ConfigError(
                f"{_KEY}: {printable(name)!r} is no name that every system takes. Rename the file."
            )
        check_inside(here, here / name)
        if not (here / name).is_file():
            raise ConfigError(f"{_KEY}: {printable(name)} is not a plain file. Remove it.")
        sizes[name] = (here / name).stat().st_size
    total = sum(sizes.values())
    if total > LARGEST_CODE_BYTES:
        biggest = sorted(sizes, key=lambda name: -sizes[name])[:_MOST_SHOWN]
        shown = ", ".join(f"{name} ({sizes[name] / 1e6:.1f} MB)" for name in biggest)
        raise ConfigError(
            f"{_KEY}: {total / 1e6:.1f} MB, and {LARGEST_CODE_BYTES / 1e6:.0f} MB are allowed. The "
            f"biggest files are {printable(shown)}. Name modules alone; data is no code."
        )
    try:
        return {name: read_plain_file(here / name, LARGEST_CODE_BYTES) for name in names}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{_KEY}: a file cannot be sent: {one_line(error)}.") from error
