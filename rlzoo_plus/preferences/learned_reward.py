"""Lets an agent learn from a reward model instead of the environment's reward."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.envs.monitor import EPISODE
from rlzoo_plus.envs.reward_vec_env import RewardVecEnv
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.preferences.reward_model import RewardModel, load_reward_model

# Standard deviations of the members that a reward is taken below their mean: what no clip has shown
# is uncertain, and an agent would otherwise find what the mean overrates there.
_CAUTION = 1.0
_SUMS = ("_return", "_disagreement", "_length")


class LearnedRewardVecEnv(RewardVecEnv):
    """Wrapper that gives agents the reward of a model in place of the environment's.

    The reward is the mean of the ensemble's members less their standard deviation.

    Evaluations have no such wrapper, and the monitors below record the rewards of the environment.
    The last info of an episode has the learned return, and the mean disagreement: that standard
    deviation.
    """

    def __init__(self, venv: VecEnv, model: RewardModel) -> None:
        """Reward environments by a model.

        Raises:
            ConfigError: It is of another task.
        """
        super().__init__(venv)
        model.require_fit(venv.observation_space, venv.action_space)
        self._model = model
        self._seen = np.zeros((venv.num_envs, model.inputs.observed), np.float32)
        self._return, self._disagreement, self._length = np.zeros((3, venv.num_envs))

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        observations = self.venv.reset()
        self._seen = self._model.inputs.of_observations(observations)
        for name in _SUMS:
            getattr(self, name)[:] = 0.0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step."""
        # Before it: an environment may write into what it has returned.
        self._rows = np.hstack([self._seen, self._model.inputs.of_actions(actions)])
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        """End a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        members = self._model.members(self._rows)
        disagreement = members.std(axis=0)
        learned = members.mean(axis=0) - _CAUTION * disagreement
        # A vectorised environment may need a step between two episodes, which has no reward.
        idle = np.array([d and EPISODE not in i for d, i in zip(dones, infos, strict=True)])
        learned[idle], disagreement[idle] = 0.0, 0.0
        self._return += learned
        self._disagreement += disagreement
        self._length += ~idle
        for rank in np.flatnonzero(dones).tolist():
            if not idle[rank]:
                infos[rank][EPISODE] |= {
                    "reward_model/return": float(self._return[rank]),
                    "reward_model/disagreement": self._disagreement[rank] / self._length[rank],
                }
            for name in _SUMS:
                getattr(self, name)[rank] = 0.0
        self._seen = self._model.inputs.of_observations(observations)
        return observations, learned.astype(np.asarray(rewards).dtype), dones, infos

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as plain data."""
        return {"_seen": self._seen.copy(), **{n: getattr(self, n).copy() for n in _SUMS}}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; raise a ValueError if it does not fit."""
        for name in ("_seen", *_SUMS):
            now, before = getattr(self, name), np.asarray(state[name])
            if before.shape != now.shape or before.dtype != now.dtype:
                raise ValueError(f"the state of the learned reward is of shape {before.shape}")
            if not np.isfinite(before).all():
                raise ValueError("the state of the learned reward is not finite")
            setattr(self, name, before.copy())


def with_digest(config: RunConfig) -> RunConfig:
    """Return a configuration that names its reward model by an absolute path and a hash.

    Raises:
        ConfigError: There is no such model, it is not that of `reward_model.sha256`, or the
            algorithm takes no reward.
    """
    given = config.reward_model
    if given.path is None:
        raise ConfigError(
            "reward_model.sha256 is that of a learned reward. Add reward_model=FOLDER, or leave it "
            "out."
        )
    if problem := _problem(config):
        raise ConfigError(f"reward_model={given.path}: {problem}")
    path = Path(given.path).expanduser().absolute()
    found = _loaded(path, given.sha256)[1]
    named = given.model_copy(update={"path": str(path), "sha256": found})
    return config.model_copy(update={"reward_model": named})


def with_learned_reward(venv: VecEnv, config: RunConfig) -> VecEnv:
    """Wrap training environments in the reward model of their run.

    Raises:
        ConfigError: It was changed, or is of another task.
    """
    given = config.reward_model
    path = Path(str(given.path)).expanduser().absolute()
    return LearnedRewardVecEnv(venv, _loaded(path, given.sha256)[0])


def _loaded(path: Path, wanted: str | None) -> tuple[RewardModel, str]:
    """Return a reward model and its hash.

    Raises:
        ConfigError: There is none, or another one than is wanted.
    """
    model, digest = load_reward_model(path)
    found = digest[:16]
    if wanted not in (None, found):
        raise ConfigError(
            f"reward_model={path}: its content is {found}, and this run learns from {wanted}. It "
            "was changed: name the model that the run began with in reward_model.path."
        )
    return model, found


def _problem(config: RunConfig) -> str | None:
    """Return why a run cannot learn from a reward model, None if it can."""
    name = config.algo.name
    if get_algorithm(name).clones:
        return f"{name} learns from demonstrations alone. Use another algorithm."
    if config.algo.replay_buffer == "her":
        return "hindsight replay computes rewards from goals alone. Set algo.replay_buffer=null."
    if config.asynchronous:
        return "with asynchronous, other actions are learned from. Leave one of them out."
    return None
