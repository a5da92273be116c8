"""Does the run fit the environment and the machine? Asked before anything heavy is built."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gymnasium import spaces

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.cadence import longest_evaluated
from rlzoo_plus.config.catalog import ALGORITHMS, AlgorithmSpec, Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig, is_own_vec_env
from rlzoo_plus.config.stages import config_of_stage
from rlzoo_plus.envs.batching import require_batchable
from rlzoo_plus.envs.episodes import has_exact_state
from rlzoo_plus.envs.exactness import replay_problem
from rlzoo_plus.envs.single import longest_episode, make_env
from rlzoo_plus.envs.spaces import Space, parts_of
from rlzoo_plus.envs.trial import Trial, check_interface
from rlzoo_plus.errors import ConfigError

_GOAL_KEYS = {"observation", "achieved_goal", "desired_goal"}
GIB = 2**30
_PLAIN = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
# What the three convolutions of NatureCNN leave something of.
_SMALLEST_IMAGE = 36
_CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")
# Networks, and rollouts with normalisation, hold single precision.
_FLOAT_BYTES = 4
# Reward, end and time-out of a transition; value, advantage, return and the like of a rollout's.
_PER_TRANSITION, _PER_ROLLOUT_STEP = 12, 24


@dataclass(frozen=True)
class EnvFacts:
    """What one instance of the environment showed."""

    observation_space: Space  # Space of the observations, behind the wrappers
    action_space: Space  # Space of the actions
    can_render: bool  # Whether it can render images
    # Why a run with it cannot be resumed bit for bit, None if a short trial found no reason
    replay_problem: str | None
    has_exact_state: bool  # Whether it gives its state itself, so that nothing has to be tried
    warnings: tuple[str, ...] = ()  # What else is doubtful

    @property
    def all_warnings(self) -> list[str]:
        """What is doubtful, as texts for the user."""
        exact = self.replay_problem and f"exact resume: no, because {self.replay_problem}"
        return [*self.warnings, *([exact] if exact else [])]


def inspect_env(config: RunConfig) -> EnvFacts:
    """Make the environment once, look at it, and check that the algorithm can act in it.

    The same holds for the environment of each stage of a curriculum.

    Raises:
        ConfigError: One cannot be made, does not suit the algorithm, or cannot be stepped as
            `vec_env` says; a stage has other spaces.
    """
    facts = _inspect_one_env(config)
    for stage in range(len(config.curriculum)):
        try:
            found = _inspect_one_env(config_of_stage(config, stage))
        except ConfigError as error:
            raise ConfigError(f"curriculum[{stage}]: {error}") from error
        for what in ("observation_space", "action_space"):
            here, there = getattr(found, what), getattr(facts, what)
            if here != there:
                raise ConfigError(
                    f"curriculum[{stage}].set gives another {what}: {printable(here)}, and "
                    f"{printable(there)} in the run's own environment. The same policy acts in "
                    "both: set what leaves the spaces as they are."
                )
    return facts


def _inspect_one_env(config: RunConfig) -> EnvFacts:
    if config.env.credit is not None and config.vec_env != "pettingzoo":
        raise ConfigError(
            f"env.credit: vec_env={config.vec_env} has one agent, which earns all. Add "
            "env=pettingzoo, or leave env.credit out."
        )
    try:
        if is_own_vec_env(config.vec_env):
            return _inspect_own_vec_env(config)
        return _inspect_single_env(config)
    except SystemExit as error:
        # As the exit code of this process it would look like a command that has succeeded.
        raise ConfigError(
            f"env.id={config.env.id}: it called sys.exit({error.code!r}) when it was reset or "
            "stepped. An environment raises an exception instead."
        ) from error


def _inspect_single_env(config: RunConfig) -> EnvFacts:
    env = make_env(config.env)
    try:
        if config.vec_env == "batched":
            require_batchable(env, config.env.id)
        spec = _check_spaces(env.observation_space, env.action_space, config)
        if spec.maskable and not env.has_wrapper_attr("action_masks"):
            raise ConfigError(
                f"maskable_ppo needs an environment with a method action_masks(); {config.env.id} "
                "has none. Add it, or use algo=ppo."
            )
        check_interface(env, config.env.id)
        can_render = "rgb_array" in (env.metadata or {}).get("render_modes", [])
        in_worker = config.vec_env == "subproc"
        trial = Trial(env, config.env.id, in_worker=in_worker)
        problem = replay_problem(config.env, trial, in_worker=in_worker)
        both = env.observation_space, env.action_space
        doubts = _doubts(*both, config)
        warnings = (*trial.warnings, *doubts, *_without_limit(config, trial))
        return EnvFacts(*both, can_render, problem, has_exact_state(env.env), warnings)
    finally:
        env.close()


def _without_limit(config: RunConfig, trial: Trial) -> Iterator[str]:
    if longest_episode(config) is not None or trial.has_ended:
        return
    most = longest_evaluated(config, None)
    cut = "never cut" if most is None else f"cut after {most:,} steps (eval.max_episode_steps)"
    yield (
        f"env.id={config.env.id} has no time limit: an episode that does not end by itself is "
        f"{cut} in evaluations, and never in training. Set env.time_limit, e.g. "
        "env.time_limit=1000."
    )


def _inspect_own_vec_env(config: RunConfig) -> EnvFacts:
    from rlzoo_plus.envs.own_vec_env import make_own_vec_env

    venv = make_own_vec_env(config.env, config.n_envs, config.vec_env, seed=0)
    try:
        _check_spaces(venv.observation_space, venv.action_space, config)
        venv.try_out()
        can_render = "rgb_array" in (venv.metadata or {}).get("render_modes", [])
        problem = venv.replay_problem()
        both = venv.observation_space, venv.action_space
        doubts = tuple(_doubts(*both, config))
        return EnvFacts(*both, can_render, problem, has_exact_state=False, warnings=doubts)
    finally:
        venv.close()


def policy_kind(observation_space: Space) -> str:
    """Return the kind of network that suits the observations: mlp, cnn or multi_input."""
    if isinstance(observation_space, spaces.Dict):
        return "multi_input"
    return "cnn" if is_image(observation_space) else "mlp"


def is_image(space: Space) -> bool:
    """Return whether a space holds images: uint8, three dimensions, 0 to 255."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and bool(np.all(space.low == 0) and np.all(space.high == 255))
    )


def is_channels_last(space: Space) -> bool:
    """Return whether a space holds images with their channels in the last dimension."""
    return is_image(space) and space.shape is not None and space.shape[-1] < space.shape[0]


def _check_spaces(observations: Space, actions: Space, config: RunConfig) -> AlgorithmSpec:
    spec, env_id = get_algorithm(config.algo.name), config.env.id
    is_dict, parts = isinstance(observations, spaces.Dict), parts_of(observations)
    if is_dict:
        _check_entries(parts, env_id)
    for part in parts.values():
        _check_observation(part, config)
        _check_image(part, config, is_dict=is_dict)
    _check_actions(actions, spec, config)
    uses_goals = (config.algo.replay_buffer or spec.replay_buffer) == "her"
    if uses_goals and not (is_dict and parts.keys() >= _GOAL_KEYS):
        raise ConfigError(
            f"hindsight replay needs a goal environment, with observation, achieved_goal and "
            f"desired_goal; {env_id} has {type(observations).__name__} observations. "
            "Use e.g. env=panda_reach, or algo.replay_buffer=null with another algorithm."
        )
    if uses_goals and config.env.frame_stack > 1:
        raise ConfigError(
            f"env.frame_stack={config.env.frame_stack}: hindsight replay computes rewards from "
            "goals, and stacked ones are others. Set env.frame_stack=1."
        )
    return spec


def _check_actions(actions: Space, spec: AlgorithmSpec, config: RunConfig) -> None:
    env_id = config.env.id
    kind = "Box" if isinstance(actions, spaces.Box) else type(actions).__name__
    if kind not in spec.actions:
        known = ALGORITHMS.items()
        others = {name: s for name, s in known if not s.maskable and s.backend == spec.backend}
        fitting = "|".join(name for name, other in others.items() if kind in other.actions)
        fix = f"Use algo={fitting}" if fitting else "Use another environment"
        if "discrete" in config.env.kwargs:
            wanted = "true" if spec.actions == ("Discrete",) else "false"
            fix += f", or env.kwargs.discrete={wanted}"
        shown = f"Discrete({actions.n})" if isinstance(actions, spaces.Discrete) else kind
        raise ConfigError(
            f"{spec.name} cannot act in {shown}, the action space of {env_id}: it needs "
            f"{' or '.join(spec.actions)}. {fix}."
        )
    where = f"env.id={env_id}: its action_space, {_shown(actions)},"
    is_flat = len(actions.shape or ()) < 2
    if isinstance(actions, (spaces.MultiDiscrete, spaces.MultiBinary)) and not is_flat:
        raise ConfigError(f"{where} has several dimensions, and actions are flat. {_plain(config)}")
    if np.any(getattr(actions, "start", 0)):
        raise ConfigError(
            f"{where} does not start at 0, and the algorithms count actions from 0. "
            f"{_plain(config)}"
        )
    if isinstance(actions, spaces.Box):
        _check_box_of_actions(actions, spec, config)


def _check_box_of_actions(actions: spaces.Box, spec: AlgorithmSpec, config: RunConfig) -> None:
    where = f"env.id={config.env.id}: its action_space, {_shown(actions)},"
    if 0 in actions.shape:
        raise ConfigError(f"{where} has nothing to decide. Let it hold at least one number.")
    if not actions.is_bounded():
        raise ConfigError(
            f"{where} has no bounds, and no algorithm here acts without them. Give the Box a "
            "finite low and high."
        )
    if spec.family is not Family.OFF_POLICY:
        return
    if actions.dtype.kind != "f":
        raise ConfigError(
            f"{where} is of {actions.dtype}, and the replay buffer of {spec.name} would cut "
            f"actions from -1 to 1 to whole numbers. {_plain(config)}"
        )
    with np.errstate(over="ignore"):
        span = actions.high - actions.low
    if not (np.isfinite(span) & (span > 0)).all():
        place = tuple(np.argwhere(~(np.isfinite(span) & (span > 0)))[0].tolist())
        low, high = actions.low[place], actions.high[place]
        raise ConfigError(
            f"{where} goes from {low:g} to {high:g} at {list(place)}, and {spec.name} divides by "
            "the width, which must be above 0 and finite. Give it other bounds, leave out what "
            "cannot be chosen, or use algo=ppo."
        )


def _shown(space: Space) -> str:
    return " ".join(str(space).split())


def _plain(config: RunConfig) -> str:
    """Return how to get spaces that the algorithms read as they are written."""
    if is_own_vec_env(config.vec_env):
        return f"Change it in {config.vec_env}."
    return (
        "Add env.wrappers=[plain_spaces], which translates; the policy's own spaces are the "
        "translated ones."
    )


def _check_entries(parts: dict[str, Space], env_id: str) -> None:
    """Refuse a dictionary with texts and the like, which cannot be flattened either."""
    unread = [key for key, part in parts.items() if not _is_flattened(part)]
    if not unread:
        return
    kinds = ", ".join(f"{key} ({type(parts[key]).__name__})" for key in unread)
    fix = "Use a wrapper that turns them into numbers."
    if keys := ", ".join(key for key in parts if key not in unread):
        fix = (
            f"Keep the others: 'env.wrappers=[{{filter_observation: {{filter_keys: [{keys}]}}}},"
            "flatten_observation]'."
        )
    raise ConfigError(f"{env_id} has observations that no policy here can read: {kinds}. {fix}")


def _is_flattened(space: Space) -> bool:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = parts_of(space).values() if isinstance(space, spaces.Dict) else space.spaces
        return all(map(_is_flattened, parts))
    return isinstance(space, (*_PLAIN, spaces.Text))


def _check_image(part: Space, config: RunConfig, *, is_dict: bool) -> None:
    """Refuse what the shipped convolutional network cannot read: too small, or no images."""
    network, env_id = config.network, config.env.id
    is_shipped = network.features_extractor in (None, "nature_cnn", "combined")
    takes_floats = (network.features_extractor_kwargs or {}).get("normalized_image")
    is_read = is_image(part) or (takes_floats and len(part.shape or ()) == 3)
    chosen = network.policy == "cnn" and is_shipped and not is_dict
    if chosen and isinstance(part, spaces.Box) and not is_read:
        raise ConfigError(
            f"network.policy=cnn reads images, uint8 from 0 to 255 of three dimensions, and "
            f"{env_id} has observations of shape {part.shape} and {part.dtype}, from "
            f"{part.low.min():g} to {part.high.max():g}. {_as_image(part)}, or use "
            "network=default, which reads plain numbers."
        )
    is_convolved = network.policy in ("auto", "cnn", "multi_input")
    if not (is_image(part) and is_convolved and is_shipped):
        return
    assert part.shape is not None
    sides = part.shape[:2] if is_channels_last(part) else part.shape[1:]
    if min(sides) < _SMALLEST_IMAGE:
        least = f"{_SMALLEST_IMAGE}x{_SMALLEST_IMAGE}"
        fix = "network.policy=mlp, which reads them as plain numbers"
        if is_dict:
            fix = "env.wrappers=[flatten_observation], which makes plain numbers of them"
        raise ConfigError(
            f"{env_id} has images of {sides[0]}x{sides[1]}, and the convolutional network "
            f"needs {least} at least. Set {fix}."
        )


def _as_image(part: spaces.Box) -> str:
    """Return how an environment makes an image of an observation."""
    if len(part.shape) == 4:
        return f"Let it return its newest image alone and set env.frame_stack={part.shape[0]}"
    if part.dtype == np.uint8 and len(part.shape) == 2:
        shape = ", ".join(map(str, (1, *part.shape)))
        return f"Add 'env.wrappers=[{{reshape_observation: {{shape: [{shape}]}}}}]'"
    return "Let it return uint8 images and give the Box low=0, high=255 and dtype=np.uint8"


def _doubts(observations: Space, actions: Space, config: RunConfig) -> Iterator[str]:
    """Yield what is learned otherwise than the spaces say."""
    where, network = f"env.id={config.env.id}: its", config.network
    if isinstance(actions, spaces.Box) and actions.dtype.kind != "f":
        yield (
            f"{where} action_space is of {actions.dtype}, and {config.algo.name} acts with "
            f"fractions such as 0.4. {_plain(config)}"
        )
    is_dict = isinstance(observations, spaces.Dict)
    is_meant = network.features_extractor not in (None, "combined")
    if is_meant or network.policy not in ("auto", "multi_input"):
        return
    for key, part in parts_of(observations).items():
        if not isinstance(part, spaces.Box) or not _falls_to_an_mlp(part):
            continue
        name = f"observation[{key}]" if key else "observation"
        meant = "" if is_dict else " network.policy=mlp says that this is meant."
        yield (
            f"{where} {name} of shape {part.shape} and {part.dtype} is no image for the "
            f"convolutional network and goes into an MLP as {math.prod(part.shape):,} numbers. "
            f"Images are uint8 from 0 to 255 of three dimensions. {_as_image(part)}.{meant}"
        )


def _falls_to_an_mlp(part: spaces.Box) -> bool:
    """Return whether an observation looks like images and is not taken for one."""
    if is_image(part) or len(part.shape) not in (2, 3, 4):
        return False
    is_flat = len(part.shape) == 2 and part.dtype != np.uint8
    return not is_flat and sorted(part.shape)[-2] >= _SMALLEST_IMAGE


def _check_observation(part: Space, config: RunConfig) -> None:
    env_id, stack, kind = config.env.id, config.env.frame_stack, type(part).__name__
    if not isinstance(part, _PLAIN):
        fix = "Use a wrapper that turns them into numbers."
        if _is_flattened(part):
            fix = "Add env.wrappers=[flatten_observation]."
        raise ConfigError(f"{env_id} has {kind} observations, which no policy here can read. {fix}")
    has_axes = isinstance(part, spaces.MultiDiscrete) and len(part.shape) > 1
    is_number = isinstance(part, spaces.Box) and part.shape == ()
    if has_axes or is_number or np.any(getattr(part, "start", 0)):
        why = "has several dimensions" if has_axes else "is a number without a dimension"
        why = why if has_axes or is_number else "does not start at 0"
        raise ConfigError(
            f"env.id={env_id}: its observation_space has {_shown(part)}, which {why}, and no "
            f"policy here reads that. {_plain(config)}"
        )
    if 0 in (part.shape or ()):
        raise ConfigError(
            f"{env_id} has observations of shape {part.shape}, with nothing in them. Use another "
            "environment, or other wrappers."
        )
    if stack > 1 and not isinstance(part, spaces.Box):
        raise ConfigError(
            f"env.frame_stack={stack} stacks Box observations; {env_id} has {kind}. Set "
            "env.frame_stack=1, or add env.wrappers=[flatten_observation]."
        )


def total_memory_bytes() -> int | None:
    """Return the memory of this machine or container [bytes], None if that is not known."""
    known = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with contextlib.suppress(OSError, ValueError):
        known.append(int(_CONTAINER_LIMIT.read_text()))
    return min(known, default=None)


def check_memory(config: RunConfig, observation_space: Space, action_space: Space) -> None:
    """Refuse a run whose buffers outgrow the machine before it ends.

    The spaces are those of one environment, without stacked frames.

    Raises:
        ConfigError: One does; the text names the key, and the most that it can be.
    """
    total = total_memory_bytes()
    for key, count, bytes_each in _needs(config, observation_space, action_space):
        if total is not None and count * bytes_each > total:
            raise ConfigError(
                f"{key} needs {count * bytes_each / GIB:,.1f} GiB of memory ({count:,} times "
                f"{bytes_each:,} bytes), and this machine has {total / GIB:,.1f} GiB. Lower it."
            )


def _needs(
    config: RunConfig, observation_space: Space, action_space: Space
) -> Iterator[tuple[str, int, int]]:
    """Yield what takes memory: the key with its value, how many, and the bytes of each."""
    values, family = config.algo.hyperparams, get_algorithm(config.algo.name).family
    stack, where = config.env.frame_stack, "algo.hyperparams"
    observation, action = stack * _bytes(observation_space), _bytes(action_space)
    yield f"env.frame_stack={stack}", config.n_envs, 2 * observation
    if family is Family.OFF_POLICY:
        size, batch = int(values.get("buffer_size", 0)), int(values.get("batch_size", 0))
        stored = 1 if values.get("optimize_memory_usage") else 2
        row = stored * observation + action + _PER_TRANSITION
        # Rows that are never written take no memory.
        yield f"{where}.buffer_size={size}", min(size, config.n_timesteps), row
        yield f"{where}.batch_size={batch}", batch, 2 * observation + action + _PER_TRANSITION
    elif family is Family.ON_POLICY:
        steps = int(values.get("n_steps", 0))
        if kept := int(values.get("buffer_size", 0)):
            yield f"{where}.buffer_size={kept}", min(kept, config.n_timesteps), observation + action
        name = f"{where}.n_steps={steps} with n_envs={config.n_envs}"
        yield name, steps * config.n_envs, observation + action + _PER_ROLLOUT_STEP


def _bytes(space: Space) -> int:
    """Return what one of a space's elements takes in a buffer [bytes]."""
    if isinstance(space, spaces.Dict):
        return sum(map(_bytes, space.spaces.values()))
    size = math.prod(space.shape or (1,))
    return size * (space.dtype.itemsize if space.dtype is not None else _FLOAT_BYTES)
