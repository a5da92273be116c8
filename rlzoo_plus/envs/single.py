"""One environment from its specification: import, make, wrap. No torch is needed for it."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import Any

import gymnasium as gym
from gymnasium.error import Error as GymError

import robots
from rlzoo_plus.config.catalog import WRAPPERS, load_named
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.config.suggest import closest
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.wrappers import ReproducibleResets, WarmupResets

EXTRAS = {"pybullet_envs_gymnasium": "bullet", "panda_gym": "panda"}
SHIPPED_PACKAGES = (*EXTRAS, "robots")


def make_env(
    spec: EnvConfig, render_mode: str | None = None, *, recorded: bool = False
) -> ReproducibleResets:
    """Make one environment with all its wrappers; training, evaluation and films use this chain.

    Args:
        spec: What to make.
        render_mode: `None`, `human` or `rgb_array`.
        recorded: Record the running episode, so that a checkpoint can hold it.

    Raises:
        ConfigError: The environment, a package or a wrapper does not exist or refuses its
            arguments.
    """
    import_packages(spec)
    options: dict[str, Any] = dict(spec.kwargs)
    if spec.time_limit is not None:
        options["max_episode_steps"] = spec.time_limit
    if render_mode is not None:
        options["render_mode"] = render_mode
    try:
        # Compiled simulators print as they start.
        with native_output_hidden() if spec.packages else contextlib.nullcontext():
            env = gym.make(spec.id, disable_env_checker=True, **options)
    except GymError as error:
        raise ConfigError(_explain(spec.id, error)) from error
    except TypeError as error:
        reason = str(error).split(" was raised from")[0]
        raise ConfigError(f"env.kwargs={spec.kwargs}: {spec.id} refuses them: {reason}.") from error
    except (ValueError, KeyError, IndexError, AssertionError) as error:
        reason = str(error) or type(error).__name__
        raise ConfigError(f"env.kwargs={spec.kwargs}: {spec.id} refuses them: {reason}") from error
    for entry in spec.wrappers:
        env = _wrap(env, entry)
    if spec.warmup_resets:
        env = WarmupResets(env, spec.warmup_resets)
    # Outermost: a warm-up must not use up an episode's seed.
    return RecordedEpisodes(env) if recorded else ReproducibleResets(env)


def import_packages(spec: EnvConfig) -> None:
    """Register our robots, and import the packages that register other environments.

    Raises:
        ConfigError: One is not installed; the text names the extra that brings it.
    """
    robots.register_robots()
    # PyBullet prints its build time when it is imported.
    early = ["pybullet"] if spec.id.startswith("robots/") else []
    for name in [*early, *spec.packages]:
        try:
            with native_output_hidden():
                import_module(name)
        except ImportError as error:
            if error.name is not None and not name.startswith(error.name.split(".")[0]):
                raise ConfigError(f"env.packages: importing {name} failed: {error}") from error
            extra = EXTRAS.get(name)
            mend = (
                f"Install it: pip install 'rlzoo-plus[{extra}]'"
                if extra
                else "Install it; if it is a file of yours, name its folder in PYTHONPATH"
            )
            raise ConfigError(f"env.packages: there is no module {name}. {mend}.") from error


def foreign_code(spec: EnvConfig) -> list[str]:
    """Return packages and dotted wrappers that a specification would import and we do not ship."""
    wrappers = [
        w for entry in spec.wrappers for w in ([entry] if isinstance(entry, str) else entry)
    ]
    module, colon, _ = spec.id.partition(":")
    packages = [*spec.packages, *([module] if colon else [])]
    return [
        *(name for name in packages if name.split(".")[0] not in SHIPPED_PACKAGES),
        *(name for name in wrappers if name not in WRAPPERS),
    ]


def _wrap(env: gym.Env, entry: str | dict[str, dict[str, Any] | None]) -> gym.Env:
    pairs = [(entry, {})] if isinstance(entry, str) else list(entry.items())
    for name, kwargs in pairs:
        wrapper = load_named("wrapper", name, WRAPPERS) if name in WRAPPERS else _import(name)
        try:
            env = wrapper(env, **(kwargs or {}))
        except (TypeError, ValueError, IndexError, AssertionError) as error:
            raise ConfigError(f"env.wrappers: {name} with {kwargs or {}}: {error}") from error
    return env


def _import(path: str) -> Any:
    module, _, attribute = path.rpartition(".")
    try:
        return getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"env.wrappers: {path} cannot be imported: {error}. Write the dotted path of a class "
            "in an importable module."
        ) from error


def _explain(env_id: str, error: GymError) -> str:
    near = closest(env_id, gym.registry.keys())
    hint = f" Did you mean {near!r}?" if near and near != env_id else ""
    return (
        f"env.id={env_id}: {str(error).splitlines()[0]}{hint} An id of another package needs "
        "env.packages=[package]."
    )
