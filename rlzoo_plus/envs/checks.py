"""Does the algorithm fit the environment? Asked before anything heavy is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.catalog import ALGORITHMS, AlgorithmSpec, get_algorithm
from rlzoo_plus.config.schema import RunConfig, is_own_vec_env
from rlzoo_plus.envs.batching import require_batchable
from rlzoo_plus.envs.episodes import has_exact_state
from rlzoo_plus.envs.exactness import replay_problem
from rlzoo_plus.envs.interface import check_interface
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.errors import ConfigError

_GOAL_KEYS = {"observation", "achieved_goal", "desired_goal"}


@dataclass(frozen=True)
class EnvFacts:
    """What one instance of the environment showed.

    Attributes:
        observation_space: Space of the observations, behind the wrappers.
        action_space: Space of the actions.
        can_render: Whether it can make pictures.
        replay_problem: Why a run with it cannot be resumed bit for bit, None if a short trial found
            no reason.
        has_exact_state: Whether it gives its state itself, so that nothing has to be tried.
    """

    observation_space: spaces.Space
    action_space: spaces.Space
    can_render: bool
    replay_problem: str | None
    has_exact_state: bool


def inspect_env(config: RunConfig) -> EnvFacts:
    """Make the environment once, look at it, and check that the algorithm can act in it.

    Raises:
        ConfigError: It cannot be made, does not suit the algorithm, or cannot be stepped as
            `vec_env` says.
    """
    try:
        return _inspect(config)
    except SystemExit as error:
        # As the exit code of this process it would look like a command that has done its work.
        raise ConfigError(
            f"env.id={config.env.id}: it called sys.exit({error.code!r}) when it was reset or "
            "stepped. An environment raises an exception instead."
        ) from error


def _inspect(config: RunConfig) -> EnvFacts:
    if is_own_vec_env(config.vec_env):
        return _inspect_own_vec_env(config)
    env = make_env(config.env)
    try:
        if config.vec_env == "batched":
            require_batchable(env, config.env.id)
        spec = _check_spaces(env.observation_space, env.action_space, config)
        if spec.maskable:
            _check_masks(env, config)
        check_interface(env, config.env.id)
        return EnvFacts(
            env.observation_space,
            env.action_space,
            "rgb_array" in (env.metadata or {}).get("render_modes", []),
            replay_problem(config.env, in_worker=config.vec_env == "subproc"),
            has_exact_state(env.env),
        )
    finally:
        env.close()


def _inspect_own_vec_env(config: RunConfig) -> EnvFacts:
    """Look at environments that come as one object: made once, reset and stepped once."""
    from rlzoo_plus.envs.own_vec_env import make_own_vec_env

    venv = make_own_vec_env(config.env, config.n_envs, config.vec_env, seed=0)
    try:
        _check_spaces(venv.observation_space, venv.action_space, config)
        venv.try_out()
        modes = (venv.metadata or {}).get("render_modes", [])
        return EnvFacts(
            venv.observation_space,
            venv.action_space,
            "rgb_array" in modes,
            None if venv.has_state else venv.no_state,
            has_exact_state=False,
        )
    finally:
        venv.close()


def _check_spaces(
    observations: spaces.Space, actions: spaces.Space, config: RunConfig
) -> AlgorithmSpec:
    spec = get_algorithm(config.algo.name)
    _check_observations(observations, config)
    _check_actions(actions, spec, config)
    _check_goal(observations, config, spec)
    return spec


def policy_kind(observation_space: spaces.Space) -> str:
    """Return the kind of network that suits the observations: mlp, cnn or multi_input."""
    if isinstance(observation_space, spaces.Dict):
        return "multi_input"
    return "cnn" if is_image(observation_space) else "mlp"


def is_image(space: spaces.Space) -> bool:
    """Tell whether a space holds pictures: uint8, three dimensions, 0 to 255."""
    return (
        isinstance(space, spaces.Box)
        and len(space.shape) == 3
        and space.dtype == np.uint8
        and bool(np.all(space.low == 0) and np.all(space.high == 255))
    )


def _check_observations(space: spaces.Space, config: RunConfig) -> None:
    stack = config.env.frame_stack
    plain = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
    parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    for part in parts:
        if not isinstance(part, plain):
            raise ConfigError(
                f"{config.env.id} has {type(part).__name__} observations, which no policy here "
                "can read. Add env.wrappers=[flatten_observation]."
            )
        if 0 in (part.shape or ()):
            raise ConfigError(
                f"{config.env.id} has observations of shape {part.shape}, with nothing in them. "
                "Use another environment, or other wrappers."
            )
        if stack > 1 and not isinstance(part, spaces.Box):
            raise ConfigError(
                f"env.frame_stack={stack} stacks Box observations; {config.env.id} has "
                f"{type(part).__name__}. Set env.frame_stack=1, or add "
                "env.wrappers=[flatten_observation]."
            )


def _check_actions(space: spaces.Space, spec: AlgorithmSpec, config: RunConfig) -> None:
    kind = type(space).__name__
    if kind in spec.actions:
        return
    fitting = [
        name for name, other in ALGORITHMS.items() if kind in other.actions and not other.maskable
    ]
    shown = f"Discrete({space.n})" if isinstance(space, spaces.Discrete) else kind
    mend = f"Use algo={'|'.join(fitting)}" if fitting else "Use another environment"
    if "discrete" in config.env.kwargs:
        wanted = "true" if spec.actions == ("Discrete",) else "false"
        mend += f", or env.kwargs.discrete={wanted}"
    raise ConfigError(
        f"{spec.name} cannot act in {shown}, the action space of {config.env.id}: it needs "
        f"{' or '.join(spec.actions)}. {mend}."
    )


def _check_goal(space: spaces.Space, config: RunConfig, spec: AlgorithmSpec) -> None:
    buffer = config.algo.replay_buffer or spec.replay_buffer
    if buffer != "her":
        return
    keys = set(space.spaces) if isinstance(space, spaces.Dict) else set()
    if not keys >= _GOAL_KEYS:
        raise ConfigError(
            f"hindsight replay needs a goal environment, with observation, achieved_goal and "
            f"desired_goal; {config.env.id} has {type(space).__name__} observations. "
            "Use e.g. env=panda_reach, or algo.replay_buffer=null with another algorithm."
        )


def _check_masks(env: object, config: RunConfig) -> None:
    try:
        env.get_wrapper_attr("action_masks")  # type: ignore[attr-defined]
    except AttributeError:
        raise ConfigError(
            f"maskable_ppo needs an environment with a method action_masks(); {config.env.id} "
            "has none. Add it, or use algo=ppo."
        ) from None
