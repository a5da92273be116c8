"""The plugin for PyBullet in ``worlds.c``: compiled at first use, and loaded.

    python -m robots.engines.bullet.plugin

compiles and loads it, and says where it is or why there is none.
"""

import ctypes
import os
import sys
from functools import cache
from pathlib import Path
from threading import Lock

import pybullet

from robots.engines.compiling import PluginError, load_library, require_switched_on

_SOURCE = Path(__file__).with_name("worlds.c")
_API_VERSION = 202010061


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
    require_switched_on()
    found = _compiled_once()
    if isinstance(found, Plugin):
        return found
    raise PluginError(found)


@cache
def _compiled_once() -> Plugin | str:
    """Return the plugin, or why there is none: neither changes within a process."""
    version = pybullet.getAPIVersion()
    if version != _API_VERSION:
        return f"it is made for PyBullet's API {_API_VERSION}, and this is {version}."
    try:
        return load_library(_SOURCE, Plugin)
    except PluginError as error:
        return str(error)


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
