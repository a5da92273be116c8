"""`SerialVecEnv`: Stable-Baselines3's `DummyVecEnv` with the same results and fewer copies."""

from __future__ import annotations

from collections import OrderedDict

from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn
from stable_baselines3.common.vec_env.util import dict_to_obs

from rlzoo_plus.envs.infos import independent


class SerialVecEnv(DummyVecEnv):
    """Steps environments in turn; whatever it returns belongs to the caller."""

    def step_wait(self) -> VecEnvStepReturn:
        """Act in each environment, and reset it where the episode ended."""
        rewards, dones, infos = self.buf_rews, self.buf_dones, self.buf_infos
        for index, (env, action) in enumerate(zip(self.envs, self.actions, strict=False)):
            observation, rewards[index], terminated, truncated, info = env.step(action)
            infos[index] = info
            dones[index] = done = terminated or truncated
            info["TimeLimit.truncated"] = truncated and not terminated
            if done:
                info["terminal_observation"] = observation
                observation, self.reset_infos[index] = env.reset()
            self._save_obs(index, observation)
        # Copied at the end: an environment may use its arrays again.
        copies = [independent(info) for info in infos]
        return self._obs_from_buf(), rewards.copy(), dones.copy(), copies

    def _obs_from_buf(self) -> VecEnvObs:
        copies = OrderedDict((key, array.copy()) for key, array in self.buf_obs.items())
        return dict_to_obs(self.observation_space, copies)
