"""The physics engines: how one is chosen, and which there are."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from robots.simulation import Mimic, Physics, Simulation

BULLET, MUJOCO = "bullet", "mujoco"
log = logging.getLogger(__name__)


class EngineError(ImportError):
    """An engine was asked for that is not installed."""


@dataclass(frozen=True)
class Engine:
    """A physics engine."""

    package: str
    """Package that must be installed."""
    extra: str
    """Extra of this project that installs it."""
    simulation: str
    """Where its ``Simulation`` is, as MODULE:CLASS."""
    stepper: str = "robots.world:in_turn"
    """Where the function is, as MODULE:FUNCTION, that takes worlds made alike and returns one that
    steps all of them, as ``robots.world.step_worlds`` does."""


ENGINES: dict[str, Engine] = {
    BULLET: Engine(
        "pybullet",
        "bullet",
        "robots.engines.bullet.simulation:BulletSimulation",
        "robots.engines.bullet.native:stepper",
    ),
    MUJOCO: Engine(
        "mujoco",
        "mujoco",
        "robots.engines.mujoco.simulation:MujocoSimulation",
        "robots.engines.mujoco.together:stepper",
    ),
}
"""By name, in the order in which the default is chosen."""


@dataclass(frozen=True)
class MjcfFacts:
    """What an MJCF says beside its links."""

    is_free: bool
    joints: tuple[str, ...]
    """Those that move."""
    home: dict[str, float]
    """Their positions in its keyframe ``home``, or else in its first one [rad or m]."""
    undriven: tuple[str, ...]
    """Those that no actuator of its drives; none of them if it has no actuators."""
    couplings: tuple[Mimic, ...]
    left_out: dict[str, tuple[str, ...]]
    """Names of what a robot here does not have, by kind."""


def mjcf_facts(path: Path) -> MjcfFacts:
    """Return what an MJCF says beside its links, as MuJoCo reads it.

    Raises:
        EngineError: If MuJoCo is not installed.
        ValueError: If it is no MJCF of one robot, or has what is refused.
    """
    chosen_engine(MUJOCO)
    facts: MjcfFacts = _load("robots.engines.mujoco.mjcf:read_facts")(path)
    return facts


def make_simulation(
    engine: str | None = None,
    physics: Physics | None = None,
    *,
    hold_torques: bool = False,
    gui: bool = False,
    draws: bool = True,
    renderer: str = "tiny",
) -> Simulation:
    """Return an empty world.

    Args:
        engine: Name of the engine; the first of ``ENGINES`` that is installed if None.
        physics: Time and solver; the defaults of ``Physics`` if None.
        hold_torques: Whether torques act over all substeps of a step; else until a substep ends.
        gui: Open a window.
        draws: Whether images are drawn.
        renderer: Renderer of images, "tiny" or "egl".

    Raises:
        ValueError: If a name is unknown, or a number of the physics is not positive.
        EngineError: If the engine is not installed.
        DisplayError: If a window is requested without a display.
        RendererError: If the renderer is not available.
    """
    options: dict[str, Any] = {"hold_torques": hold_torques, "gui": gui, "renderer": renderer}
    simulation: Simulation = _load(ENGINES[chosen_engine(engine)].simulation)(
        physics or Physics(), draws=draws, **options
    )
    return simulation


def stepper(engine: str) -> Callable[[Sequence[Any]], Callable[[Any], Any]]:
    """Return the ``Engine.stepper`` of an engine."""
    found: Callable[[Sequence[Any]], Callable[[Any], Any]] = _load(ENGINES[engine].stepper)
    return found


def chosen_engine(engine: object) -> str:
    """Return the name of the engine that is used where one is asked for, or none.

    Raises:
        ValueError: If it is unknown.
        EngineError: If it is not installed, or none is.
    """
    if engine is None:
        return _default()
    if not isinstance(engine, str) or engine not in ENGINES:
        raise ValueError(f"engine={engine!r} is unknown. Choose among: {', '.join(ENGINES)}.")
    one = ENGINES[engine]
    if not _is_installed(one.package):
        raise EngineError(
            f"engine={engine!r} needs {one.package}, which is not installed. Install it with: "
            f"pip install 'rlzoo-plus[{one.extra}]'"
        )
    return engine


def _load(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ImportError:
        return False


@cache
def _default() -> str:
    first, *_ = ENGINES
    for name, one in ENGINES.items():
        if _is_installed(one.package):
            if name != first:
                missing = ENGINES[first].package
                log.warning("engine=%s, since %s is not installed.", name, missing)
            return name
    extras = " or ".join(f"pip install 'rlzoo-plus[{one.extra}]'" for one in ENGINES.values())
    raise EngineError(f"No physics engine is installed. Install one: {extras}.")
