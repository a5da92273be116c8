"""The library that steps MuJoCo worlds, compiled from ``mujoco_worlds.c``."""

import ctypes
import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from robots.engines.compiling import PluginError, load_library, require_switched_on
from robots.engines.mujoco.motors import Motors

_SOURCE = Path(__file__).with_name("mujoco_worlds.c")


class _World(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("model", "data")),
        *((name, ctypes.c_int) for name in ("substeps", "count", "first_row", "length")),
        ("per_s", ctypes.c_double),
        *(
            (name, ctypes.c_void_p)
            for name in (
                *("dofs", "positions", "gain", "kept", "slowest", "fastest", "goal", "speed"),
                *("efforts", "program", "row"),
            )
        ),
    )


_ARRAYS = ("dofs", "positions", "gain", "kept", "slowest", "fastest", "goal", "speed", "efforts")


class NativeWorld:
    """What the library knows of a world; it keeps what it points to.

    Attributes:
        step: Function that steps it by all of its substeps.
        row: What is read after a step, shape (n_numbers,).
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        motors: Motors,
        substeps: int,
        program: Sequence[float] = (),
        n_numbers: int = 0,
    ) -> None:
        """Describe a world.

        Args:
            model: Its model.
            data: Its data.
            motors: Its motors.
            substeps: Physics steps of a step.
            program: What is read after it.
            n_numbers: How many numbers that are.

        Raises:
            PluginError: There is no library.
        """
        step = get_library().worlds_step
        self.row, numbers = np.zeros(n_numbers), np.array(program, np.float64)
        self._kept = model, data, motors, numbers
        counts = substeps, motors.count, motors.first_row, len(numbers)
        world = _World(model._address, data._address, *counts, motors.per_s)
        arrays = {name: getattr(motors, name) for name in _ARRAYS}
        for name, array in {**arrays, "program": numbers, "row": self.row}.items():
            setattr(world, name, array.ctypes.data)
        self._world = world
        self.address = ctypes.addressof(world)
        alone = (ctypes.c_void_p * 1)(self.address)
        self.step = partial(step, alone, 1, 1)


def get_library() -> Any:
    """Return the library; raise a PluginError where there is none."""
    require_switched_on()
    found = _compiled_once()
    if isinstance(found, str):
        raise PluginError(found)
    return found


@cache
def _compiled_once() -> Any:
    """Return the library, or why there is none: neither changes within a process."""
    folder = Path(mujoco.__file__).parent
    version = f"mujoco {mujoco.mj_versionString()}"
    try:
        return load_library(_SOURCE, _load, [str(folder / "include")], version)
    except PluginError as error:
        return str(error)


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    pointer, whole = ctypes.c_void_p, ctypes.c_int
    library.worlds_bind.restype = ctypes.c_char_p
    library.worlds_bind.argtypes = [ctypes.c_char_p, whole]
    library.worlds_step.restype = library.worlds_reach.restype = None
    library.worlds_step.argtypes = [pointer, whole, whole]
    library.worlds_reach.argtypes = [pointer] * 2 + [whole] * 2 + [pointer] * 5 + [whole]
    loaded = next(iter(sorted(Path(mujoco.__file__).parent.glob("libmujoco*"))), "libmujoco")
    missing = library.worlds_bind(os.fsencode(loaded), mujoco.mj_version())
    if missing is not None:
        raise PluginError(f"this build of MuJoCo has no {missing.decode()}.")
    return library
