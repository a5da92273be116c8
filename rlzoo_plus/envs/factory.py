"""The only wrapper chain: training, evaluation, recording and serving are built here."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gymnasium import spaces

from rlzoo_plus.config.own_code import packages_of
from rlzoo_plus.config.schema import EnvConfig, NormalizeConfig, RunConfig, is_own_vec_env
from rlzoo_plus.envs.batching import ENOUGH, batch_problem, require_batchable
from rlzoo_plus.envs.calls import with_recorded_calls
from rlzoo_plus.envs.checks import is_image
from rlzoo_plus.envs.seeding import evaluation_seeds, seed_generators
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.registry import import_user_module

if TYPE_CHECKING:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecEnv, VecNormalize


def make_train_env(config: RunConfig, seed: int, monitor: Path | None = None) -> VecEnv:
    """Build the training environments: vectorised, stacked, normalised.

    Args:
        config: The run.
        seed: Seed of the first environment; the next ones count up.
        monitor: Folder for one CSV of episodes per environment, or None; files that are there
            already, of a run that goes on, are appended to.

    Raises:
        ConfigError: The environment cannot be made, or not as `vec_env` says.
    """
    venv = _make_vec_env(
        config.env,
        config.n_envs,
        config.vec_env,
        monitor,
        seed=seed,
        packages=packages_of(config),
        recorded=True,
    )
    if config.normalize is not None:
        gamma = float(config.algo.hyperparams.get("gamma", 0.99))
        venv = _normalize(venv, config.normalize, gamma, _mask_keys(config))
    venv.seed(seed)
    return venv


def make_eval_env(
    spec: EnvConfig,
    n_envs: int,
    vec_env: str = "auto",
    render_mode: str | None = None,
    packages: Sequence[str] = (),
) -> VecEnv:
    """Build environments for evaluation: the same chain, with a seed for each episode.

    Observations leave it unnormalised; the policy brings the statistics of its moment.

    Args:
        spec: The environment.
        n_envs: How many.
        vec_env: How they are stepped; see `steps_alike` for a run of another process.
        render_mode: `None`, `human` or `rgb_array`.
        packages: What processes of their own import first, see `packages_of`.

    Raises:
        ConfigError: The environment cannot be made, or not as `vec_env` says.
    """
    first = evaluation_seeds(1)[0]
    venv = _make_vec_env(
        spec, n_envs, vec_env, None, seed=first, packages=packages, render_mode=render_mode
    )
    if (spec.kwargs.get("randomization") or {}).get("curriculum"):
        # A curriculum counts episodes of training; what is evaluated is what it leads to.
        venv.env_method("set_randomization_level", 1.0)
    return venv


def steps_alike(config: RunConfig) -> str:
    """Return how a run's environment is stepped in this process: by its own class, if it has one.

    The processes and batches of a training are for its speed, and change no episode.
    """
    return config.vec_env if is_own_vec_env(config.vec_env) else "auto"


def with_one_env(config: RunConfig) -> RunConfig:
    """Return a configuration with one environment, in this process."""
    one = {"n_envs": 1} if is_own_vec_env(config.vec_env) else {"n_envs": 1, "vec_env": "dummy"}
    return config.model_copy(update=one)


def _make_vec_env(
    spec: EnvConfig,
    n_envs: int,
    vec_env: str,
    monitor: Path | None,
    *,
    seed: int,
    packages: Sequence[str],
    render_mode: str | None = None,
    recorded: bool = False,
) -> VecEnv:
    from stable_baselines3.common.vec_env import VecFrameStack, VecTransposeImage

    from rlzoo_plus.envs.finite import FiniteVecEnv

    venv: VecEnv
    if is_own_vec_env(vec_env):
        from rlzoo_plus.envs.own_vec_env import make_own_vec_env

        venv = make_own_vec_env(spec, n_envs, vec_env, seed, monitor, render_mode)
    else:
        venv = _make_chains(
            spec,
            n_envs,
            vec_env,
            monitor,
            packages=packages,
            render_mode=render_mode,
            recorded=recorded,
        )
    if recorded:
        venv = FiniteVecEnv(venv)
    if spec.frame_stack > 1:
        venv = VecFrameStack(venv, n_stack=spec.frame_stack)
    # Stable-Baselines3 would add it by itself to the training environment only.
    return VecTransposeImage(venv) if _has_channels_last(venv.observation_space) else venv


def _make_chains(
    spec: EnvConfig,
    n_envs: int,
    vec_env: str,
    monitor: Path | None,
    *,
    packages: Sequence[str],
    render_mode: str | None,
    recorded: bool,
) -> VecEnv:
    makers = [
        functools.partial(
            _make_monitored,
            spec,
            rank,
            None if monitor is None else monitor / str(rank),
            render_mode=render_mode,
            recorded=recorded,
            packages=packages if vec_env == "subproc" else None,
        )
        for rank in range(n_envs)
    ]
    if vec_env == "subproc":
        from rlzoo_plus.envs.subproc import ProcessVecEnv

        return _kind(ProcessVecEnv, recorded=recorded)(makers)
    monitors = [make() for make in makers]
    return _in_this_process(monitors, vec_env, spec.id, recorded=recorded)


def _kind(kind: type, *, recorded: bool) -> type:
    return with_recorded_calls(kind) if recorded else kind


def _in_this_process(
    monitors: list[Monitor], vec_env: str, env_id: str, *, recorded: bool
) -> VecEnv:
    """Join environments: robots of ours in one pass, the others one after the other."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    if vec_env == "batched":
        require_batchable(monitors[0].env, env_id)
    is_worth_it = len(monitors) >= ENOUGH and batch_problem(monitors[0].env) is None
    if vec_env == "batched" or (vec_env == "auto" and is_worth_it):
        from rlzoo_plus.envs.robot_vec_env import BatchedRobots

        return _kind(BatchedRobots, recorded=recorded)(monitors)
    made = [lambda monitor=monitor: monitor for monitor in monitors]  # type: ignore[misc]
    return _kind(DummyVecEnv, recorded=recorded)(made)


def _make_monitored(
    spec: EnvConfig,
    rank: int,
    monitor: Path | None,
    *,
    render_mode: str | None,
    recorded: bool,
    packages: Sequence[str] | None,
) -> Monitor:
    """Make one environment; in a process of its own import first what its run imports."""
    from rlzoo_plus.envs.monitor import EpisodeMonitor

    if packages is not None:
        for name in packages:
            import_user_module("packages", name)
        # What the constructor draws; each reset seeds again.
        seed_generators(rank)
    env = make_env(spec, render_mode, recorded=recorded)
    env.has_own_process = packages is not None
    file = None if monitor is None else monitor.with_name(f"{monitor.name}.{EpisodeMonitor.EXT}")
    return EpisodeMonitor(env, file)


def _has_channels_last(space: spaces.Space) -> bool:
    parts = list(space.spaces.values()) if isinstance(space, spaces.Dict) else [space]
    return any(is_image(part) and part.shape[-1] < part.shape[0] for part in parts if part.shape)


def _mask_keys(config: RunConfig) -> list[str]:
    """Return the entries that are masks for the features extractor: they stay 0 and 1."""
    masks = (config.network.features_extractor_kwargs or {}).get("masks")
    return list(masks.values()) if isinstance(masks, dict) else []


def _normalize(
    venv: VecEnv, normalize: NormalizeConfig, gamma: float, masks: list[str]
) -> VecNormalize:
    from stable_baselines3.common.vec_env import VecNormalize

    space = venv.observation_space
    keys = None
    if isinstance(space, spaces.Dict):
        boxes = [
            k for k, s in space.spaces.items() if isinstance(s, spaces.Box) and not is_image(s)
        ]
        keys = [key for key in boxes if key not in masks]
    is_normalizable = isinstance(space, (spaces.Box, spaces.Dict)) and not is_image(space)
    observation = normalize.observation and is_normalizable and keys != []
    return VecNormalize(
        venv,
        norm_obs=observation,
        norm_reward=normalize.reward,
        clip_obs=normalize.clip_observation,
        clip_reward=normalize.clip_reward,
        gamma=gamma,
        epsilon=normalize.epsilon,
        norm_obs_keys=keys if observation else None,
    )
