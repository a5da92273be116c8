"""One environment from its specification: import, make, wrap. No torch is needed for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import load_env_creator
from gymnasium.error import Error as GymError
from gymnasium.wrappers import TimeLimit

import robots
from rlzoo_plus.config.cadence import with_schedule
from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.config.own_code import EXTRAS
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.schema import EnvConfig, RunConfig, is_own_vec_env
from rlzoo_plus.config.signatures import with_sequences
from rlzoo_plus.envs.episodes import RecordedEpisodes, layers_of
from rlzoo_plus.envs.interface import check_spaces
from rlzoo_plus.envs.quiet import native_output_hidden
from rlzoo_plus.envs.task_wrappers import register_without_velocities
from rlzoo_plus.envs.wrappers import ReproducibleResets, WarmupResets
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.registry import import_user_module, where_raised

# What the manager itself gives to `gymnasium.make`.
_MANAGED = {
    "id": "use env.id=...",
    "render_mode": "recording and watching choose it",
    "max_episode_steps": "use env.time_limit=...",
    "disable_env_checker": "rlzoo-plus doctor checks the environment",
}
_REFUSALS = (TypeError, ValueError, KeyError, IndexError, AssertionError)
# Steps of the longest episode of each specification that was made here.
_limits: dict[str, int | None] = {}


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
    options: dict[str, Any] = reveal(spec.kwargs, "env.kwargs")
    if spec.time_limit is not None:
        options["max_episode_steps"] = spec.time_limit
    if render_mode is not None:
        options["render_mode"] = render_mode
    env = _make(spec, options)
    for entry in spec.wrappers:
        env = _wrap(env, entry)
    if spec.warmup_resets:
        env = WarmupResets(env, spec.warmup_resets)
    _limits[spec.model_dump_json()] = _limit_of(env)
    # Outermost: a warm-up must not use up an episode's seed.
    return RecordedEpisodes(env) if recorded else ReproducibleResets(env)


def longest_episode(config: RunConfig) -> int | None:
    """Return the steps after which an episode is cut off, None if the environment does not say.

    Raises:
        ConfigError: It cannot be made.
    """
    spec = config.env
    if is_own_vec_env(config.vec_env):
        # It makes many at once, and may make none by itself.
        return spec.time_limit or getattr(gym.registry.get(spec.id), "max_episode_steps", None)
    key = spec.model_dump_json()
    if key not in _limits:
        make_env(spec).close()
    return _limits[key]


def scheduled(config: RunConfig) -> RunConfig:
    """Return a configuration with numbers for its automatic evaluations, see `with_schedule`."""
    return with_schedule(config, lambda: longest_episode(config))


def import_packages(spec: EnvConfig) -> None:
    """Register our robots, and import the packages that register other environments.

    Raises:
        ConfigError: One is not installed; the text names the extra that brings it.
    """
    robots.register_robots()
    register_without_velocities()
    # PyBullet prints its build time when it is imported.
    early = ["pybullet"] if spec.id.startswith("robots/") else []
    extras = {"pybullet": "", **{name: f"[{extra}]" for name, extra in EXTRAS.items()}}
    for name in [*early, *spec.packages]:
        extra = extras.get(name.partition(".")[0])
        install = None if extra is None else f"Install it: pip install 'rlzoo-plus{extra}'"
        with native_output_hidden():
            import_user_module("env.packages", name, install)


def _limit_of(env: gym.Env) -> int | None:
    known = [part._max_episode_steps for part in layers_of(env) if isinstance(part, TimeLimit)]
    # Our robots end their episodes themselves.
    known.append(getattr(env.unwrapped, "max_episode_steps", None))
    return min((steps for steps in known if isinstance(steps, int)), default=None)


def _make(spec: EnvConfig, options: dict[str, Any]) -> gym.Env:
    for key, instead in _MANAGED.items():
        if key in spec.kwargs:
            raise ConfigError(f"env.kwargs.{key} is not set here: {instead}.")
    module, colon, _ = spec.id.partition(":")
    if colon:
        import_user_module("env.id", module)
    try:
        # Compiled simulators print as they start.
        with native_output_hidden() if spec.packages else contextlib.nullcontext():
            if any(isinstance(value, list) for value in options.values()):
                options = with_sequences(_creator(spec.id), options)
            env = gym.make(spec.id, disable_env_checker=True, **options)
    except GymError as error:
        raise ConfigError(_explain(spec.id, error)) from error
    except _REFUSALS as error:
        reason = (str(error) or type(error).__name__).split(" was raised from")[0]
        what = (
            f"env.kwargs={spec.kwargs}: {spec.id} refuses them"
            if spec.kwargs
            else (f"env.id={spec.id} cannot be made")
        )
        raise ConfigError(f"{what}: {reason.splitlines()[0]}") from error
    except (Exception, SystemExit) as error:
        if spec.id.startswith("robots/"):
            raise
        # Somebody else's code.
        raise ConfigError(f"env.id={spec.id} cannot be made: {where_raised(error)}.") from error
    check_spaces(env, spec.id)
    return env


def _creator(env_id: str) -> Callable[..., Any]:
    """Return what makes the environment of an id."""
    entry_point = gym.spec(env_id.rpartition(":")[2]).entry_point
    assert entry_point is not None
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def _wrap(env: gym.Env, entry: str | dict[str, dict[str, Any] | None]) -> gym.Env:
    pairs = [(entry, {})] if isinstance(entry, str) else list(entry.items())
    for name, kwargs in pairs:
        wrapper = WRAPPERS.load(name)
        where = f"env.wrappers: {name} with {kwargs or {}}"
        arguments = reveal(kwargs or {}, "env.wrappers")
        try:
            env = wrapper(env, **with_sequences(wrapper, arguments))
        except (*_REFUSALS, GymError) as error:
            raise ConfigError(f"{where}: {error}") from error
        except Exception as error:
            if name in WRAPPERS:
                raise
            raise ConfigError(f"{where}: {where_raised(error)}.") from error
    return env


def _explain(env_id: str, error: GymError) -> str:
    near = closest(env_id, gym.registry.keys())
    hint = f" Did you mean {near!r}?" if near and near != env_id else ""
    return (
        f"env.id={env_id}: {str(error).splitlines()[0]}{hint} An id of another package needs "
        "env.packages=[package]."
    )
