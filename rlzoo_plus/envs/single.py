"""One environment from its specification: import, make, check, wrap. This module needs no torch."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Literal

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.error import DependencyNotInstalled
from gymnasium.error import Error as GymError
from gymnasium.wrappers import TimeLimit

import robots
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.cadence import LONGEST_EVALUATED, with_schedule
from rlzoo_plus.config.catalog import WRAPPERS
from rlzoo_plus.config.literals import plain_value
from rlzoo_plus.config.own_code import EXTRAS, env_module
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.schema import EnvConfig, RunConfig, is_own_vec_env
from rlzoo_plus.config.signatures import with_sequences
from rlzoo_plus.envs.engine import engine_package
from rlzoo_plus.envs.episodes import (
    EpisodeLimit,
    RecordedEpisodes,
    ReproducibleResets,
    WarmupResets,
    layers_of,
)
from rlzoo_plus.envs.trial import OLD
from rlzoo_plus.envs.wrappers import register_without_velocities
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.given import given, is_given
from rlzoo_plus.registry import import_user_module, where_raised
from robots.quiet import native_output_hidden

# Arguments of `gymnasium.make` that the manager itself sets.
_MANAGED = {
    "id": "use env.id=...",
    "render_mode": "recording and watching choose it",
    "max_episode_steps": "use env.time_limit=...",
    "disable_env_checker": "rlzoo-plus doctor checks the environment",
}
# What environments of PettingZoo have.
_AGENTS = "possible_agents"
# Packages that register ids which begin so.
_HOMES = {"ALE/": "ale_py", "MiniGrid-": "minigrid", "BabyAI-": "minigrid"}
_REFUSALS = (TypeError, ValueError, KeyError, IndexError, AssertionError)
MostSteps = int | Literal["auto"] | None
# Steps of the longest episode of each specification that was made here.
_limits: dict[str, int | None] = {}
_defaults: dict[str, dict[str, Any]] = {}
_OF_PICTURES = ("render_mode", "render_width", "render_height", "renderer")


def make_env(
    spec: EnvConfig,
    render_mode: str | None = None,
    *,
    recorded: bool = False,
    most_steps: MostSteps = None,
) -> ReproducibleResets:
    """Make one environment with all its wrappers; training, evaluation and videos use this chain.

    Args:
        spec: What to make.
        render_mode: `None`, `human` or `rgb_array`.
        recorded: Record the running episode, so that a checkpoint can hold it.
        most_steps: Truncate an episode after so many steps; `auto`: after `LONGEST_EVALUATED` if
            the environment has no limit.

    Raises:
        ConfigError: The environment, a package or a wrapper is missing or refuses its arguments.
    """
    _refuse_several_agents(spec.id, f"{spec.id} {spec.packages}")
    _draw_without_display()
    import_packages(spec)
    options: dict[str, Any] = reveal(spec.kwargs, "env.kwargs")
    if spec.time_limit is not None:
        options["max_episode_steps"] = spec.time_limit
    if render_mode is not None:
        options["render_mode"] = render_mode
    env = _make(spec, options)
    for entry in spec.wrappers:
        for name, kwargs in [(entry, {})] if isinstance(entry, str) else entry.items():
            env = _wrap(env, name, kwargs or {})
    if spec.warmup_resets:
        env = WarmupResets(env, spec.warmup_resets)
    known: list[Any] = [
        part._max_episode_steps for part in layers_of(env) if isinstance(part, TimeLimit)
    ]
    # Our robots end their episodes themselves.
    known.append(getattr(env.unwrapped, "max_episode_steps", None))
    known.append(_longest_game(env))
    whole = (steps for steps in known if isinstance(steps, int))
    key = spec.model_dump_json()
    limit = _limits[key] = min(whole, default=None)
    _defaults[key] = _default_arguments(env.unwrapped, spec.kwargs)
    if most_steps == "auto":
        most_steps = None if limit else LONGEST_EVALUATED
    if most_steps is not None and most_steps < (limit or most_steps + 1):
        env = EpisodeLimit(env, most_steps)
    # Outermost: a warm-up must not use up an episode's seed.
    return RecordedEpisodes(env) if recorded else ReproducibleResets(env)


def defaults_of(spec: EnvConfig) -> dict[str, Any]:
    """Return the arguments that `env.kwargs` leaves at their defaults; none if it was not made."""
    return _defaults.get(spec.model_dump_json(), {})


def _default_arguments(env: gym.Env, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the arguments of an environment are that are not given, as plain data."""
    known = {p.name: p.default for p in inspect.signature(type(env)).parameters.values()}
    found = {**known, **getattr(env, "default_options", dict)()}
    weights = getattr(getattr(env, "task", None), "weights", None)
    if isinstance(weights, Mapping) and "reward" in known:
        own = given.get("reward") or {}
        found["reward"] = {name: value for name, value in weights.items() if name not in own}
        given = {name: value for name, value in given.items() if name != "reward"}
    kept: dict[str, Any] = {}
    for name, value in found.items():
        # Some are no plain values, or none at all.
        with contextlib.suppress(ConfigError):
            if name not in (*given, *_OF_PICTURES):
                kept[name] = plain_value(name, value)
    return kept


def _longest_game(env: gym.Env) -> int | None:
    """Return the steps after which an Atari game is truncated by its emulator, None if never."""
    ale: Any = getattr(env.unwrapped, "ale", None)
    frames = ale.getInt("max_num_frames_per_episode") if hasattr(ale, "getInt") else 0
    skips = [getattr(layer, "frames_per_step", 1) for layer in layers_of(env)]
    # A number, or the least and the most.
    repeats = getattr(env.unwrapped, "_frameskip", 1)
    least = repeats if isinstance(repeats, int) else min(repeats)
    return -(-frames // max([least, *skips])) if frames > 0 else None


def longest_episode(config: RunConfig) -> int | None:
    """Return the steps after which an episode is truncated, None if the environment has no limit.

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


def scheduled(config: RunConfig, *, decides: bool = False) -> RunConfig:
    """Return a configuration with numbers for its automatic evaluations, see `with_schedule`."""
    return with_schedule(config, lambda: longest_episode(config), decides=decides)


@functools.cache
def _draw_without_display() -> None:
    """Choose how MuJoCo and pygame draw where there is no display, before they are imported.

    MuJoCo would choose a window, which fails; pygame would report an error, and go on. What the
    user has set stays.
    """
    is_headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if not is_headless or not sys.platform.startswith("linux"):
        return
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    if "MUJOCO_GL" in os.environ or not find_spec("mujoco"):
        return
    for name, library in (("egl", "libEGL.so.1"), ("osmesa", "libOSMesa.so.8")):
        # A backend whose library is missing would break the import of MuJoCo.
        with contextlib.suppress(OSError):
            ctypes.CDLL(library)
            os.environ["MUJOCO_GL"] = name
            return


def import_packages(spec: EnvConfig) -> None:
    """Register our robots, and import the packages that register other environments.

    Raises:
        ConfigError: One is not installed; the text names the extra that brings it.
    """
    robots.register_robots()
    register_without_velocities()
    # PyBullet prints its build time when it is imported.
    engine = engine_package(spec) if spec.id.startswith("robots/") else None
    packages = [] if spec.python is not None else spec.packages
    for name in [*([engine] if engine else []), *packages]:
        extra = EXTRAS.get(name.partition(".")[0])
        install = None if extra is None else f"Install it: pip install 'rlzoo-plus[{extra}]'"
        with native_output_hidden():
            import_user_module("env.packages", name, install)


def _check_render_mode(env_id: str, metadata: Any, options: dict[str, Any]) -> None:
    """Refuse a way of drawing that an environment does not offer; one that lists none is tried."""
    mode = options.get("render_mode")
    modes = (metadata if isinstance(metadata, dict) else {}).get("render_modes") or []
    # Gymnasium shows images in a window by itself.
    enough = {mode, "rgb_array"} if mode == "human" else {mode}
    if mode is not None and modes and enough.isdisjoint(modes):
        raise ConfigError(
            f"env.id={env_id} has no render_mode {mode}: it offers {', '.join(map(str, modes))}. "
            f"Add {mode} to its metadata, and let its render() support it."
        )


def _make(spec: EnvConfig, options: dict[str, Any]) -> gym.Env:
    for key, instead in _MANAGED.items():
        if key in spec.kwargs:
            raise ConfigError(f"env.kwargs.{key} is not set here: {instead}.")
    if spec.python is not None:
        return _make_elsewhere(spec, options)
    made_by, creator = _own_creator(spec.id), None
    try:
        # Compiled simulators print as they start.
        with native_output_hidden() if spec.packages else contextlib.nullcontext():
            creator = _creator(spec.id, made_by)
            if creator is not None:
                _check_render_mode(spec.id, getattr(creator, "metadata", None), options)
                options = with_sequences(creator, options)
            if sys.modules.get("pybullet") is not None:
                from robots.engines.bullet.memory import keep_worlds_small

                keep_worlds_small()
            made: Any = spec.id if made_by is None else EnvSpec(spec.id, entry_point=made_by)
            env = gym.make(made, disable_env_checker=True, **options)
    except ConfigError:
        raise
    except DependencyNotInstalled as error:
        raise ConfigError(f"env.id={spec.id} cannot be made: {one_line(error)}") from error
    except GymError as error:
        near = closest(spec.id, gym.registry.keys())
        hint = f" Did you mean {near!r}?" if near and near != spec.id else ""
        home = next((h for start, h in _HOMES.items() if spec.id.startswith(start)), None)
        needs = "An id of another package needs env.packages=[package]."
        if home is not None and home not in spec.packages:
            needs = f"It is an id of env.packages=[{home}]."
        raise ConfigError(
            f"env.id={spec.id}: {str(error).splitlines()[0]}{hint} {needs}"
        ) from error
    except _REFUSALS as error:
        _refuse_several_agents(spec.id, str(error))
        if "render_mode" in options and "'render_mode'" in str(error):
            raise ConfigError(
                f"env.id={spec.id} takes no render_mode, so it cannot be drawn. Give its "
                "constructor this argument, and metadata with render_modes."
            ) from error
        reason = (str(error) or type(error).__name__).split(" was raised from")[0].splitlines()[0]
        if not (isinstance(error, TypeError) or spec.id.startswith("robots/")):
            reason = where_raised(error)
        if spec.kwargs:
            text = f"env.kwargs={spec.kwargs}: {spec.id} refuses them: {reason}"
            raise ConfigError(f"{text}{_near_argument(reason, creator)}") from error
        raise ConfigError(f"env.id={spec.id} cannot be made: {reason}") from error
    except (Exception, SystemExit) as error:
        if spec.id.startswith("robots/"):
            # Of its model, or of what draws here.
            is_told = type(error).__module__.startswith("robots.")
            if isinstance(error, FileNotFoundError) or (is_told and isinstance(error, Exception)):
                reason = one_line(error)
                raise ConfigError(f"env.id={spec.id} cannot be made: {reason}.") from error
            raise
        # Somebody else's code.
        raise ConfigError(f"env.id={spec.id} cannot be made: {where_raised(error)}.") from error
    _check_declared_spaces(env, spec.id)
    return env


def creator_of(spec: EnvConfig) -> Any:
    """Return the class or function that makes an environment, None if there is none.

    Raises:
        ConfigError: A package of it cannot be imported.
    """
    import_packages(spec)
    with native_output_hidden() if spec.packages else contextlib.nullcontext():
        return _creator(spec.id, _own_creator(spec.id))


def _creator(env_id: str, made_by: Any) -> Any:
    known = gym.registry.get(env_id.rpartition(":")[2])
    creator: Any = made_by if known is None else known.entry_point
    return load_env_creator(creator) if isinstance(creator, str) else creator


def _make_elsewhere(spec: EnvConfig, options: dict[str, Any]) -> gym.Env:
    """Make an environment in another interpreter, which imports its packages."""
    there = EnvSpec(spec.id, entry_point="rlzoo_plus.interpreters.remote_env:RemoteEnv")
    own = {k: v for k, v in options.items() if k not in ("max_episode_steps", "render_mode")}
    return gym.make(
        there,
        max_episode_steps=spec.time_limit,
        disable_env_checker=True,
        render_mode=options.get("render_mode"),
        python=spec.python,
        env_id=spec.id,
        packages=spec.packages,
        time_limit=spec.time_limit,
        arguments=own,
        worlds_per_process=spec.worlds_per_process,
    )


def _own_creator(env_id: str) -> Any:
    """Return what makes an environment that is no registered id: a class, or a function."""
    if is_given(env_id):
        return given(env_id, "env.id")
    module = env_module(env_id)
    if not module or env_id in gym.registry:
        return None
    name = env_id[len(module) + 1 :]
    found = vars(import_user_module("env.id", module)).get(name)
    if name in gym.registry:
        return None
    if found is None and ":" not in env_id:
        raise ConfigError(f"env.id={env_id}: {module} has no {name}, and no id is called so.")
    return found


def _near_argument(reason: str, creator: Any) -> str:
    """Return a hint at the argument that was meant; empty if none is near."""
    wrong = re.search(r"argument '(\w+)'", reason)
    if wrong is None:
        return ""
    # Robots name their common arguments in the reason.
    known = {*re.findall(r"\w+", reason[wrong.end() :]), *inspect.signature(creator).parameters}
    near = closest(wrong[1], known - {"self", "kwargs", "args"})
    return f" Did you mean 'env.kwargs.{near}'?" if near else ""


def _refuse_several_agents(env_id: str, words: str) -> None:
    """Refuse an environment of PettingZoo's kind, by its class or by what is said of it."""
    found = gym.registry.get(env_id.rpartition(":")[2])
    if "pettingzoo" in words.lower() or hasattr(getattr(found, "entry_point", 0), _AGENTS):
        raise ConfigError(
            f"env.id={env_id}: it has several agents, and the algorithms here train one. Use an "
            "environment of gymnasium.Env, e.g. one that moves the other agents itself."
        )


def _wrap(env: gym.Env, name: str, kwargs: dict[str, Any]) -> gym.Env:
    wrapper = WRAPPERS.load(name)
    arguments = reveal(kwargs, "env.wrappers")
    try:
        wrapped: gym.Env = wrapper(env, **with_sequences(wrapper, arguments))
        return wrapped
    except (*_REFUSALS, GymError) as error:
        reason = str(error) or where_raised(error)
        raise ConfigError(f"env.wrappers: {name} with {kwargs}: {reason}") from error
    except Exception as error:
        if name in WRAPPERS:
            raise
        text = f"env.wrappers: {name} with {kwargs}: {where_raised(error)}."
        raise ConfigError(text) from error


def _check_declared_spaces(env: gym.Env, env_id: str) -> None:
    """Check that an environment has spaces of Gymnasium, before anything wraps it."""
    if hasattr(env.unwrapped, _AGENTS):
        _refuse_several_agents(env_id, "pettingzoo")
    for name in ("observation_space", "action_space"):
        space = getattr(env.unwrapped, name, None)
        if space is None:
            raise ConfigError(f"env.id={env_id}: it has no {name}. Set it in its __init__().")
        if not isinstance(space, spaces.Space):
            kind = f"{type(space).__module__}.{type(space).__name__}"
            raise ConfigError(
                f"env.id={env_id}: its {name} is a {kind}, not one of gymnasium.spaces. {OLD}."
            )
