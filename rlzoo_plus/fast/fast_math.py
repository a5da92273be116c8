"""Lets MKL, PyTorch's library of matrix products, take the path of Intel processors on AMD's.

MKL chooses once in a process, before its first product. A switch (`fast_math.c`) that was loaded
before PyTorch decides; a process that jobs are forked from loads it, and each job sets it.
"""

from __future__ import annotations

import contextlib
import ctypes
import platform
import shutil
import sys
from pathlib import Path

from rlzoo_plus.artifacts.provenance import machine_fingerprint
from rlzoo_plus.errors import ConfigError
from robots.quiet import native_output_hidden

_SOURCE = Path(__file__).with_suffix(".c")
_FLAG = "rlzoo_fast_math"
_OFF = "Leave fast_math=false."


def is_fast() -> bool:
    """Return whether this process computes with `fast_math=true`."""
    flag = _loaded_flag()
    return flag is not None and flag.value != 0


def prepare() -> None:
    """Compile the switch, so that a server of processes that train can load it.

    Where it cannot be, each of them says why.
    """
    with contextlib.suppress(ConfigError):
        if not _needs_no_switch():
            _library(compiles=True)


def load_switch(*, compiles: bool) -> None:
    """Load the switch, which changes nothing by itself; it has to be before PyTorch is imported.

    Args:
        compiles: Compile it if that has not been done; otherwise nothing is loaded then.

    Raises:
        ConfigError: It cannot be compiled or loaded here.
    """
    if _loaded_flag() is not None or _needs_no_switch():
        return
    path = _library(compiles=compiles)
    if path is None:
        return
    if "torch" in sys.modules:
        raise _refused(
            "PyTorch was imported before. Use the command, or train before it is imported"
        )
    try:
        # MKL's own function of the same name comes after those that are visible to all.
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise _refused(f"{path.name} cannot be loaded: {error}") from error


def require(*, fast: bool) -> None:
    """Switch this process to `fast_math=fast`, which PyTorch must not have computed in yet.

    Raises:
        ConfigError: It cannot be switched, or MKL has chosen its path already.
    """
    if not fast:
        if is_fast():
            raise ConfigError(
                "fast_math=false: this process computes with fast_math=true, which cannot be "
                "changed. Train in another process."
            )
        return
    load_switch(compiles=True)
    flag = _loaded_flag()
    if flag is None or flag.value:
        return
    flag.value = 1
    import torch

    if not _took_effect(Path(torch.__file__).parent):
        flag.value = 0
        raise _refused("MKL has chosen its path already, or this build of PyTorch is without it")


def _took_effect(torch: Path) -> bool:
    """Return whether MKL takes another path than the one for all processors."""
    try:
        mkl = ctypes.CDLL(str(torch / "lib" / "libtorch_cpu.so"))
        return bool(mkl.mkl_serv_cpu_detect() != 0)
    except (OSError, AttributeError):
        return False


def _loaded_flag() -> ctypes.c_int | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        return ctypes.c_int.in_dll(ctypes.CDLL(None), _FLAG)
    except ValueError:
        return None


def _needs_no_switch() -> bool:
    """Return whether MKL takes its fast path by itself.

    Raises:
        ConfigError: There is no such path for this machine.
    """
    machine = machine_fingerprint()
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        raise _refused(f"it is for Linux on x86_64, and this is {platform.system()}")
    return "intel" in str(machine["processor"]).lower()


def _library(*, compiles: bool) -> Path | None:
    """Return the compiled switch, None if it is not and shall not be.

    Raises:
        ConfigError: It cannot be compiled, or others can write where it is.
    """
    with native_output_hidden():
        from robots.plugin import (
            COMPILERS,
            compile_library,
            library_key,
            plugin_folder,
            require_private,
        )
    try:
        folder = plugin_folder()
        path = folder / f"fast-math-{library_key(_SOURCE)}.so"
        if not path.exists():
            if not compiles:
                return None
            if not any(map(shutil.which, COMPILERS)):
                raise _refused(f"there is no C compiler ({', '.join(COMPILERS)})")
            compile_library(path, _SOURCE)
        require_private(path)
    except (RuntimeError, OSError) as error:
        raise _refused(str(error)) from error
    return path


def _refused(reason: str) -> ConfigError:
    return ConfigError(f"fast_math=true: {reason.rstrip('.')}. {_OFF}")
