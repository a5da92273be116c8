"""What wrappers of vectorised environments share that give agents another reward."""

from __future__ import annotations

from typing import Any

from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper


class RewardVecEnv(VecEnvWrapper):
    """Wrapper whose rewards are not those that the monitors below it record."""

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return whether each is wrapped; in no monitor, whose returns are not those learned from.

        ARS would rate its candidates by them.
        """
        if issubclass(wrapper_class, Monitor):
            return [False for _ in self._get_indices(indices)]
        return self.venv.env_is_wrapped(wrapper_class, indices=indices)
