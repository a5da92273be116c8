"""The one chain of wrappers: environments for training, evaluation, recording and serving."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from gymnasium import Env, spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecNormalize,
    VecTransposeImage,
)

from rlzoo_plus.config.catalog import PREFERENCES
from rlzoo_plus.config.own_code import packages_of
from rlzoo_plus.config.schema import EnvConfig, NormalizeConfig, RunConfig, is_own_vec_env
from rlzoo_plus.envs.atari import for_training
from rlzoo_plus.envs.batching import batch_problem, enough_of, require_batchable
from rlzoo_plus.envs.calls import with_recorded_calls
from rlzoo_plus.envs.cost_limit import CostLimitVecEnv, require_priceable
from rlzoo_plus.envs.finite import FiniteVecEnv
from rlzoo_plus.envs.fit import is_channels_last, is_image
from rlzoo_plus.envs.grouped import GroupedActions
from rlzoo_plus.envs.monitor import EpisodeMonitor
from rlzoo_plus.envs.normalization import OwnRows
from rlzoo_plus.envs.own_vec_env import make_own_vec_env
from rlzoo_plus.envs.robot_vec_env import BatchedRobots
from rlzoo_plus.envs.seeding import evaluation_seeds, seed_generators
from rlzoo_plus.envs.single import MostSteps, make_env
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.envs.subproc import ProcessVecEnv
from rlzoo_plus.registry import import_user_module


def make_train_env(config: RunConfig, seed: int, monitor: Path | None = None) -> VecEnv:
    """Build the training environments: vectorised, stacked, normalised.

    `seed` is that of the first environment; the next ones count up. `monitor` is the folder for one
    CSV of episodes per environment; the files of a resumed run are appended to.

    Raises:
        ConfigError: The environment cannot be made, or not as `vec_env` says.
    """
    chain = _Chain(config.env, config.vec_env, packages_of(config), recorded=True)
    venv = wrapped_for_training(_make_vec_env(chain, config.n_envs, seed, monitor), config)
    venv.seed(seed)
    return venv


def wrapped_for_training(venv: VecEnv, config: RunConfig) -> VecEnv:
    """Wrap environments in what only training has: a learned reward, prices, normalisation."""
    if config.reward_model.path is not None:
        venv = import_module(PREFERENCES).with_learned_reward(venv, config)
    if config.cost is not None:
        require_priceable(venv.observation_space, config.env.id)
        venv = CostLimitVecEnv(venv, config.cost)
    return venv if config.normalize is None else _normalize(venv, config, config.normalize)


def make_eval_env(
    spec: EnvConfig,
    n_envs: int,
    vec_env: str = "auto",
    render_mode: str | None = None,
    packages: Sequence[str] = (),
    most_steps: MostSteps = "auto",
) -> VecEnv:
    """Build environments for evaluation: the same chain, with a seed for each episode.

    Observations are not normalised here; the policy brings its own statistics. `steps_alike` gives
    the `vec_env` for a run of another process, and `packages_of` the `packages` that processes of
    their own import first. `render_mode` is `None`, `human` or `rgb_array`. `most_steps` is that
    of `eval.max_episode_steps`.

    Raises:
        ConfigError: The environment cannot be made, or not as `vec_env` says.
    """
    if isinstance(most_steps, int) and vec_env == "batched":
        vec_env = "auto"  # robots in a batch end their episodes themselves
    # An evaluation has the rewards of the world.
    spec = spec.model_copy(update={"credit": None})
    chain = _Chain(spec, vec_env, packages, render_mode, most_steps=most_steps)
    venv = _make_vec_env(chain, n_envs, seed=evaluation_seeds(1)[0])
    if (spec.kwargs.get("randomization") or {}).get("curriculum"):
        # A curriculum counts episodes of training; evaluations use its last stage.
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


@dataclass(frozen=True)
class _Chain:
    """How each of the environments is made.

    `recorded` is for those that a checkpoint holds, `most_steps` for those of evaluations.
    """

    spec: EnvConfig
    vec_env: str
    packages: Sequence[str]
    render_mode: str | None = None
    recorded: bool = False
    most_steps: MostSteps = None


def _make_vec_env(chain: _Chain, n_envs: int, seed: int, monitor: Path | None = None) -> VecEnv:
    spec, vec_env = chain.spec, chain.vec_env
    venv: VecEnv
    if is_own_vec_env(vec_env):
        venv = make_own_vec_env(spec, n_envs, vec_env, seed, monitor, chain.render_mode)
    else:
        files = [None if monitor is None else monitor / str(rank) for rank in range(n_envs)]
        made = functools.partial(_make_monitored, chain)
        venv = _step_together([functools.partial(made, *pair) for pair in enumerate(files)], chain)
    if chain.recorded:
        venv = FiniteVecEnv(venv)
    if spec.frame_stack > 1:
        venv = VecFrameStack(venv, n_stack=spec.frame_stack)
    parts = parts_of(venv.observation_space).values()
    # Stable-Baselines3 would add it by itself to the training environment only.
    return _channels_first(venv) if any(map(is_channels_last, parts)) else venv


def _channels_first(venv: VecEnv) -> VecEnv:
    """Transpose images; of a dictionary only those that need it, which SB3 refuses to mix."""
    if not isinstance(venv.observation_space, spaces.Dict):
        return VecTransposeImage(venv)
    space = copy.deepcopy(venv.observation_space)
    keys = [key for key, part in space.spaces.items() if is_channels_last(part)]
    for key in keys:
        space.spaces[key] = VecTransposeImage.transpose_space(space.spaces[key], key)  # type: ignore[arg-type]
    transposed = VecTransposeImage(venv, skip=True)
    transposed.skip, transposed.image_space_keys = False, keys
    transposed.observation_space = space
    return transposed


def _step_together(makers: Sequence[Callable[[], Env]], chain: _Chain) -> VecEnv:
    """Join environments: in processes, or here: robots of ours in one pass, others in turn."""
    kind: Any = DummyVecEnv
    if chain.vec_env == "subproc":
        kind = ProcessVecEnv
    else:
        monitors = [make() for make in makers]
        # What wraps a monitored environment is no robot of ours.
        first = monitors[0].env if isinstance(monitors[0], Monitor) else monitors[0]
        if chain.vec_env == "batched":
            require_batchable(first, chain.spec.id)
        auto = chain.vec_env == "auto"
        is_worth_it = auto and len(monitors) >= enough_of(first) and batch_problem(first) is None
        if chain.vec_env == "batched" or is_worth_it:
            kind = BatchedRobots
        makers = [lambda monitor=monitor: monitor for monitor in monitors]  # type: ignore[misc]
    venv: VecEnv = (with_recorded_calls(kind) if chain.recorded else kind)(makers)
    return venv


def _make_monitored(chain: _Chain, rank: int, monitor: Path | None) -> Env:
    """Make one environment; a process of its own first imports what its run imports.

    The `Monitor` records whole episodes with their own rewards: what ends them earlier for
    training, or changes rewards, comes outside of it.
    """
    has_own_process = chain.vec_env == "subproc"
    if has_own_process:
        for name in chain.packages:
            import_user_module("packages", name)
        # For what the constructor draws; each reset seeds again.
        seed_generators(rank)
    options: Any = {"recorded": chain.recorded, "most_steps": chain.most_steps}
    env = make_env(chain.spec, chain.render_mode, **options)
    env.has_own_process = has_own_process
    file = None if monitor is None else monitor.with_name(f"{monitor.name}.{EpisodeMonitor.EXT}")
    monitored = EpisodeMonitor(env, file)
    if not (chain.recorded and "atari" in str(chain.spec.wrappers)):
        return monitored
    return for_training(monitored, chain.spec.wrappers)


def _normalize(venv: VecEnv, config: RunConfig, normalize: NormalizeConfig) -> VecNormalize:
    space, keys = venv.observation_space, None
    if isinstance(space, spaces.Dict):
        # Masks for the features extractor stay 0 and 1.
        masks = (config.network.features_extractor_kwargs or {}).get("masks")
        masked = list(masks.values()) if isinstance(masks, dict) else []
        boxes = {k: s for k, s in space.spaces.items() if isinstance(s, spaces.Box)}
        keys = [k for k, s in boxes.items() if not is_image(s) and k not in masked]
    is_normalizable = isinstance(space, (spaces.Box, spaces.Dict)) and not is_image(space)
    observation = normalize.observation and is_normalizable and keys != []
    normalized = VecNormalize(
        venv,
        norm_obs=observation,
        norm_reward=normalize.reward,
        clip_obs=normalize.clip_observation,
        clip_reward=normalize.clip_reward,
        gamma=float(config.algo.hyperparams.get("gamma", 0.99)),
        epsilon=normalize.epsilon,
        norm_obs_keys=keys if observation else None,
    )
    if observation and isinstance(venv.action_space, GroupedActions):
        normalized.obs_rms = {k: OwnRows(shape=space[k].shape) for k in keys or ()}  # type: ignore[index]
    return normalized
