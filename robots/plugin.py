"""The plugin for PyBullet in ``worlds.c``: compiled at first use, kept for the user, loaded.

It is kept in ``ROBOTS_NATIVE_FOLDER``, by default ``rlzoo_plus/native`` in the user's cache
folder, under a name that changes with its source and with what it is made for.

    python -m robots.plugin     compiles and loads it, and says where it is or why there is none
"""

import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock

import pybullet

SWITCH = "ROBOTS_NATIVE"
FOLDER = "ROBOTS_NATIVE_FOLDER"
_SOURCE = Path(__file__).with_name("worlds.c")
_API_VERSION = 202010061
# Without contraction, since a fused product and sum would be rounded otherwise than in Python.
_FLAGS = ("-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-ffp-contract=off")
_LIBRARIES = ("-ldl", "-lm", "-lpthread")
COMPILERS = ("cc", "gcc", "clang")


class PluginError(RuntimeError):
    """Worlds cannot be stepped by the plugin; the text says why, and what helps."""


class Plugin:
    """The loaded plugin.

    Attributes:
        path: File of the library.
        functions: Its functions; see ``worlds.c``.
    """

    def __init__(self, path: Path) -> None:
        """Load a library; it must be one that nobody else can have written.

        Raises:
            OSError: If it cannot be loaded.
            PluginError: If this build of PyBullet lacks a function.
        """
        self.path = path
        self.functions = ctypes.CDLL(str(path))
        self._lock = Lock()
        pointer, whole = ctypes.c_void_p, ctypes.c_int
        signatures = {
            "worlds_bind": (ctypes.c_char_p, [ctypes.c_char_p]),
            "worlds_new": (pointer, [pointer, whole]),
            "worlds_free": (None, [pointer]),
            "walkers_finish": (None, [pointer]),
            "worlds_step": (whole, [pointer, whole, pointer, whole, pointer, whole, whole]),
            "give_back_zeros": (ctypes.c_long, [pointer, pointer]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments
        missing = self.functions.worlds_bind(os.fsencode(pybullet.__file__))
        if missing is not None:
            raise PluginError(
                f"this build of PyBullet has no {missing.decode()}. Install the wheel or the "
                "source of pybullet from PyPI."
            )

    def add(self, client: int, program: ctypes.Array[ctypes.c_double]) -> int:
        """Return the address of a program for the world of a client; free it with ``remove``.

        Raises:
            PluginError: If the client does not take the plugin.
        """
        with self._lock:  # Both calls speak of the same world.
            number = pybullet.loadPlugin(str(self.path), "_worlds", physicsClientId=client)
            if number < 0:
                raise PluginError("PyBullet did not load it into a world.")
            pybullet.executePluginCommand(number, physicsClientId=client)
            address: int | None = self.functions.worlds_new(program, len(program))
        if not address:
            raise MemoryError("There is no memory for the program of a world.")
        return address

    def remove(self, address: int) -> None:
        """Free a program."""
        self.functions.worlds_free(address)


def get_plugin() -> Plugin:
    """Return the plugin of this process, compiled if it has not been.

    Raises:
        PluginError: If it is switched off, or cannot be compiled or loaded.
    """
    if os.environ.get(SWITCH, "1") == "0":
        raise PluginError(f"{SWITCH}=0 switches it off.")
    found = _compiled_once()
    if isinstance(found, Plugin):
        return found
    raise PluginError(found)


@cache
def _compiled_once() -> Plugin | str:
    """Return the plugin, or why there is none: neither changes within a process."""
    try:
        if os.name != "posix":
            raise PluginError("it is for Linux and macOS.")
        version = pybullet.getAPIVersion()
        if version != _API_VERSION:
            raise PluginError(
                f"it is made for PyBullet's API {_API_VERSION}, and this is {version}."
            )
        folder = plugin_folder()
        path = folder / f"worlds-{library_key(_SOURCE)}.so"
        if not path.exists():
            compile_library(path, _SOURCE)
        require_private(path)
        try:
            return Plugin(path)
        except OSError:  # What a crashed machine has left of it, perhaps.
            compile_library(path, _SOURCE)
            return Plugin(path)
    # A user without a home is a RuntimeError, as a PluginError is.
    except (RuntimeError, OSError) as error:
        return str(error)


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


def library_key(source: Path) -> str:
    """Return what changes with a source and with what its library is made for."""
    target = (platform.system(), platform.machine(), *platform.libc_ver(), *_FLAGS)
    return hashlib.sha256(source.read_bytes() + repr(target).encode()).hexdigest()[:16]


def compile_library(path: Path, source: Path) -> None:
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
    command = [compiler, *_FLAGS, "-o", name, str(source), *_LIBRARIES]
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


def main() -> int:
    """Compile and load the plugin, and print where it is or why there is none."""
    try:
        print(f"worlds are stepped by {get_plugin().path}")
    except PluginError as error:
        print(f"worlds are stepped in Python: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
