"""The physics engine of a robot's environment: here, and in its training."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from rlzoo_plus.artifacts.provenance import package_version
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.resolve import TEAMS
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.errors import ConfigError, unknown_name


def engine_of(spec: EnvConfig) -> str | None:
    """Return the name of the engine that an environment has here, None if it is no robot.

    Raises:
        ConfigError: The engine is unknown or not installed.
    """
    asked = spec.kwargs.get("engine")
    if not _has_engine(spec.id, asked):
        return None
    try:
        name: str = _engines().chosen_engine(asked)
        return name
    except (ImportError, ValueError) as error:
        raise ConfigError(f"env.id={spec.id} cannot be made: {error}") from error


def engine_package(spec: EnvConfig) -> str | None:
    """Return the package of `engine_of`."""
    name = engine_of(spec)
    return None if name is None else str(_engines().ENGINES[name].package)


def engine_version(spec: EnvConfig) -> str | None:
    """Return name and version of `engine_of`, as `mujoco 4.0.0`."""
    package = engine_package(spec)
    return None if package is None else f"{engine_of(spec)} {package_version(package)}"


def trained_engine(provenance: Mapping[str, Any], env_id: str, asked: object) -> str | None:
    """Return name and version of the engine that a run recorded, None if it is no robot.

    Runs from before it was recorded have Bullet, and no version is told.

    Args:
        provenance: Of the run; it is untrusted.
        env_id: Id of the run's environment.
        asked: The engine that its configuration names, if any.
    """
    if not _has_engine(env_id, asked):
        return None
    recorded = provenance.get("engine")
    is_told = isinstance(recorded, str) and recorded.strip()
    return printable(recorded if is_told else asked or _engines().BULLET, 60)


def check_engine(name: object, where: str) -> None:
    """Refuse what is no name of an engine; `where` it stands is for the message."""
    if name not in (known := _engines().ENGINES):
        raise ConfigError(f"{where}: {unknown_name('engine', printable(name), known)}")


def is_same_engine(first: str | None, second: str | None) -> bool:
    """Return whether two engines, with or without version, are of one name."""
    return (first or "").partition(" ")[0] == (second or "").partition(" ")[0]


def _engines() -> ModuleType:
    from robots import engines  # It imports Gymnasium, which a command's help does without.

    return engines


def _has_engine(env_id: str, asked: object) -> bool:
    is_ours = env_id.rpartition(":")[2].startswith("robots/") or env_id.startswith(TEAMS)
    return is_ours or (isinstance(asked, str) and asked in _engines().ENGINES)
