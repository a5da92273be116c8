"""`LeanNormalize`: Stable-Baselines3's `VecNormalize` with the same numbers and fewer copies."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class LeanNormalize(VecNormalize):
    """Normalises observations and rewards; dictionaries are left to `VecNormalize`.

    The operations and their order are those of `VecNormalize`, so the numbers are.
    """

    def step_wait(self) -> VecEnvStepReturn:
        """End a step."""
        if not isinstance(self.observation_space, spaces.Box) or not self.observation_space.shape:
            return super().step_wait()
        observations, rewards, dones, infos = self.venv.step_wait()
        assert isinstance(observations, np.ndarray)
        self.old_obs, self.old_reward = observations, rewards
        if self.training and self.norm_obs:
            update_statistics(self.obs_rms, observations)
        normalized = self.normalize_obs(observations)
        if self.training:
            self.returns = self.returns * self.gamma + rewards
            update_statistics(self.ret_rms, self.returns)
        rewards = self.normalize_reward(rewards)
        for index in np.flatnonzero(dones):
            info = infos[index]
            if "terminal_observation" in info:
                info["terminal_observation"] = self.normalize_obs(info["terminal_observation"])
        self.returns[dones] = 0
        return normalized, rewards, dones, infos

    def normalize_obs(self, obs: VecEnvObs) -> Any:
        """Return normalised observations; the statistics stay as they are."""
        if not _is_plain(obs):
            return super().normalize_obs(obs)
        if not self.norm_obs:
            return obs.copy(order="K")
        scaled = obs - self.obs_rms.mean
        scaled /= np.sqrt(self.obs_rms.var + self.epsilon)
        return scaled.clip(-self.clip_obs, self.clip_obs, out=scaled).astype(np.float32)

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Return normalised rewards; the statistics stay as they are."""
        if not _is_plain(reward) or not self.norm_reward:
            return super().normalize_reward(reward)
        scaled = reward / np.sqrt(self.ret_rms.var + self.epsilon)
        return scaled.clip(-self.clip_reward, self.clip_reward).astype(np.float32)

    def save(self, save_path: str) -> None:
        """Save it as a `VecNormalize`, which can be loaded without this package."""
        plain = VecNormalize.__new__(VecNormalize)
        plain.__dict__.update(vars(self))
        plain.save(save_path)


def update_statistics(statistics: RunningMeanStd, values: np.ndarray) -> None:
    """Do what `RunningMeanStd.update` does: sums once, and fewer temporary arrays.

    Args:
        statistics: The running mean and variance.
        values: Samples, shape (n_samples, ...).
    """
    if values.dtype not in _FLOATS or type(statistics) is not RunningMeanStd:
        statistics.update(values)
        return
    count = values.shape[0]
    # What np.mean and np.var do, type of the divisor included.
    divisor = np.intp(count)
    mean = np.add.reduce(values, axis=0, keepdims=True)
    np.true_divide(mean, divisor, out=mean, casting="unsafe")
    spread = values - mean
    np.multiply(spread, spread, out=spread)
    variance = np.add.reduce(spread, axis=0, keepdims=True)
    np.true_divide(variance, divisor, out=variance, casting="unsafe")
    before, total = statistics.count, statistics.count + count
    delta = mean[0] - statistics.mean
    squares = statistics.var * before + variance[0] * count
    squares = squares + np.square(delta) * before * count / total
    statistics.mean = statistics.mean + delta * count / total
    statistics.var = squares / total
    statistics.count = count + before


def _is_plain(values: Any) -> bool:
    return type(values) is np.ndarray and values.ndim > 0
