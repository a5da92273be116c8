"""The only module that imports `rlzoo_plus.fast`; without that room, everything trains as well.

The room stays out where its folder is deleted, where importing it fails, and for versions of torch
and Stable-Baselines3 that it was not tested with. Weights are the same with it and without.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)
# A string: nothing of it is imported where it is not used, and it may be missing.
_ROOM = "rlzoo_plus.fast"
# Modules of the base classes of others' environments that the room steps in one pass.
NATIVE_WORLDS = {
    "pybullet_envs_gymnasium.env_bases": "bullet",
    "gymnasium.envs.mujoco.mujoco_env": "mujoco",
}


def mixins(config: RunConfig) -> list[type]:
    """Return what an algorithm's class gets, so that `accelerate` can make its agents faster."""
    room = _door() if config.fast or config.record_updates else None
    return [] if room is None else [room.Accelerated]


def accelerate(agent: Any, config: RunConfig) -> None:
    """Let an agent of a class with `mixins` update itself and act faster, as its run says.

    Raises:
        ConfigError: `fast` is set, and the room stays out.
    """
    require(config)
    room = _door() if config.fast or config.record_updates else None
    if room is not None:
        room.accelerate(agent, config)


def native_worlds(kind: type) -> Any:
    """Return the module that steps environments of a class in one pass, None if there is none."""
    bases = {base.__module__ for base in kind.__mro__}
    package = next((name for base, name in NATIVE_WORLDS.items() if base in bases), None)
    room = None if package is None else _door()
    return None if room is None else room.native_worlds(package)


def before_torch(config: RunConfig) -> None:
    """Set what PyTorch reads as it is imported; a command calls it before that.

    Raises:
        ConfigError: `fast` is set, and the room stays out.
    """
    if not _why_out("startup"):
        _import("startup").before_torch()
    require(config)


def import_compiler_late() -> None:
    """Leave out PyTorch's compiler, which every optimizer imports, until somebody compiles."""
    if not _why_out("startup"):
        _import("startup").import_compiler_late()


def require(config: RunConfig) -> None:
    """Check that a run can be as fast as `fast` says.

    Raises:
        ConfigError: `fast` is set, and the room stays out.
    """
    if config.fast and (reason := _why_out("door")):
        raise ConfigError(f"fast={str(config.fast).lower()}: {reason}. Leave fast=false.")


@cache
def _door() -> Any:
    """Return the room's door, None where it stays out; one line of the log says why."""
    if reason := _why_out("door"):
        log.warning("trainings are not accelerated: %s", reason)
        return None
    return _import("door")


@cache
def _why_out(module: str) -> str:
    """Return why a module of the room cannot be used, empty if it can."""
    try:
        reason: str = import_module(_ROOM).why_not_tested()
        if not reason:
            _import(module)
        return reason
    # Another version of a library may lack anything; what is missing must never end a training.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == _ROOM:
            return f"this installation has no {_ROOM}"
        log.debug("why %s.%s stays out:", _ROOM, module, exc_info=True)
        return f"{_ROOM} cannot be imported ({type(error).__name__}: {error})"


def _import(module: str) -> Any:
    return import_module(f"{_ROOM}.{module}")
