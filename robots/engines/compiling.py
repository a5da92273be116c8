"""Compiles a C source of this package at first use, and keeps the library for the user.

It is kept in ``ROBOTS_NATIVE_FOLDER``, by default ``rlzoo_plus/native`` in the user's cache
folder, under a name that changes with its source and with what it is made for.
"""

import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

SWITCH = "ROBOTS_NATIVE"
FOLDER = "ROBOTS_NATIVE_FOLDER"
# Without contraction, since a fused product and sum would be rounded otherwise than in Python.
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
_LIBRARIES = ("-ldl", "-lm", "-lpthread")
COMPILERS = ("cc", "gcc", "clang")
_HEADER = Path(__file__).with_name("pool.h")


_SAID: set[str] = set()
_T = TypeVar("_T")
log = logging.getLogger(__name__)


class PluginError(RuntimeError):
    """Worlds cannot be stepped natively; the text says why, and what helps."""


def load_library(
    source: Path, load: Callable[[Path], _T], includes: Sequence[str] = (), made_for: str = ""
) -> _T:
    """Return what a function makes of the library of a source, compiled if there is none yet.

    Args:
        source: The source.
        load: Loads it; an OSError means that the file is what a crashed machine left of it.
        includes: Folders of further headers.
        made_for: What else the library depends on, such as the version of a package.

    Raises:
        PluginError: If there is no compiler, it fails, or others could have written the library.
    """
    if os.name != "posix":
        raise PluginError("it is for Linux and macOS.")
    try:
        path = plugin_folder() / f"{source.stem}-{library_key(source, made_for)}.so"
        if not path.exists():
            compile_library(path, source, includes)
        require_private(path)
        try:
            return load(path)
        except OSError:
            compile_library(path, source, includes)
            return load(path)
    except PluginError:
        raise
    # A user without a home is a RuntimeError.
    except (RuntimeError, OSError) as error:
        raise PluginError(str(error)) from error


def require_switched_on() -> None:
    """Raise a PluginError where ``ROBOTS_NATIVE=0`` says to stay with Python."""
    if os.environ.get(SWITCH, "1") == "0":
        raise PluginError(f"{SWITCH}=0 switches it off.")


def plugin_folder() -> Path:
    """Return the folder of compiled plugins, made if it does not exist.

    Raises:
        PluginError: If somebody else could write there.
        OSError: If it cannot be made.
    """
    chosen = os.environ.get(FOLDER)
    if chosen:
        folder = Path(chosen)
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(base) / "rlzoo_plus" / "native"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PluginError(
            f"{folder} cannot be made ({error.strerror}). Set {FOLDER} to a folder of yours."
        ) from error
    folder = folder.resolve(strict=True)
    require_private(folder)
    return folder


def require_private(path: Path) -> None:
    """Refuse a file or folder that somebody else can write, or put another in the place of.

    Raises:
        PluginError: If it, or a folder above it, belongs to another user than this one or root, or
            a group or all may write there. A sticky folder such as /tmp may be above it.
    """
    for place in (path, *path.parents):
        status = place.lstat()
        others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        is_sticky = place != path and status.st_mode & stat.S_ISVTX
        if status.st_uid not in (0, os.geteuid()) or (others and not is_sticky):
            raise PluginError(
                f"others can write {place}, and a library is loaded only from where they cannot. "
                f"Run chmod go-w on it, or set {FOLDER} to a folder of yours."
            )


def library_key(source: Path, made_for: str = "") -> str:
    """Return what changes with a source and with what its library is made for."""
    target = (platform.system(), platform.machine(), *platform.libc_ver(), *_FLAGS, made_for)
    text = source.read_bytes() + _HEADER.read_bytes() + repr(target).encode()
    return hashlib.sha256(text).hexdigest()[:16]


def compile_library(path: Path, source: Path, includes: Sequence[str] = ()) -> None:
    """Compile a source to a path; whoever else does the same replaces it by the same.

    Raises:
        PluginError: If there is no compiler, or it fails.
    """
    names = (os.environ.get("CC", ""), *COMPILERS)
    compiler = next(filter(None, (shutil.which(name) for name in names if name)), None)
    if compiler is None:
        raise PluginError(
            f"there is no C compiler ({', '.join(COMPILERS)}). Install one, for example the "
            f"package gcc; {SWITCH}=0 silences this."
        )
    try:
        number, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
    except OSError as error:
        raise PluginError(
            f"{path.parent} cannot be written ({error.strerror}). Set {FOLDER} to a folder of "
            "yours."
        ) from error
    os.close(number)
    places = [f"-I{folder}" for folder in (_HEADER.parent, *includes)]
    command = [compiler, *_FLAGS, *places, "-o", name, str(source), *_LIBRARIES]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
        if done.returncode:
            what = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()
            raise PluginError(f"{compiler} cannot compile {source.name}: {what[0]}")
        os.chmod(name, 0o755)
        os.replace(name, path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PluginError(f"{compiler} cannot compile {source.name}: {error}") from error
    finally:
        Path(name).unlink(missing_ok=True)


def say(reason: str) -> None:
    """Warn, once in a process for each reason, that worlds are stepped in Python."""
    if reason not in _SAID:
        _SAID.add(reason)
        log.warning("Worlds are stepped in Python, slower and with the same numbers: %s", reason)
