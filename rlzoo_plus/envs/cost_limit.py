"""A limit on the cost of an episode, kept by a weight in the reward that a PID controller sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvObs, VecEnvStepReturn

from rlzoo_plus.config.schema import CostConfig
from rlzoo_plus.envs.monitor import EPISODE, is_number
from rlzoo_plus.envs.reward_vec_env import RewardVecEnv
from rlzoo_plus.errors import ConfigError, RunError

_NUMBERS = ("weight", "integral", "last_cost")


class CostLimitVecEnv(RewardVecEnv):
    """Wrapper that gives agents `(reward - weight * cost) / (1 + weight)` as their reward.

    After every few episodes a PID controller moves the weight, so that the mean cost of an episode
    comes to the limit (Stooke et al., "Responsive Safety in Reinforcement Learning by PID
    Lagrangian Methods", 2020). The monitors below record the rewards of the environment.

    Attributes:
        weight: What one unit of cost takes from the reward; 0 at the start.
    """

    def __init__(self, venv: VecEnv, config: CostConfig) -> None:
        """Price the cost of environments, from `cost` or `violations` of their infos."""
        super().__init__(venv)
        self._config = config
        self.weight = self._integral = self._last_cost = 0.0
        self._running = np.zeros(venv.num_envs)
        self._ended: list[float] = []

    def reset(self) -> VecEnvObs:
        """Start an episode everywhere."""
        self._running[:] = 0.0
        return self.venv.reset()

    def step_wait(self) -> VecEnvStepReturn:
        """End a step.

        Raises:
            RunError: The cost of a step is no number.
        """
        observations, rewards, dones, infos = self.venv.step_wait()
        costs = np.array([cost_of(info) for info in infos])
        if not np.isfinite(costs).all():
            raise RunError(f"the environment returned the cost {costs}: it must be a number.")
        self._running += costs
        weight = self.weight
        priced = ((rewards - weight * costs) / (1.0 + weight)).astype(np.asarray(rewards).dtype)
        for rank in np.flatnonzero(dones).tolist():
            self._end_episode(rank, infos[rank])
        return observations, priced, dones, infos

    def _end_episode(self, rank: int, info: dict[str, Any]) -> None:
        cost = float(self._running[rank])
        self._running[rank] = 0.0
        if EPISODE in info:
            info[EPISODE] |= {"cost/episode": cost, "cost/weight": self.weight}
        self._ended.append(cost)
        if len(self._ended) >= self._config.every_episodes:
            self._set_weight(sum(self._ended) / len(self._ended))
            self._ended = []

    def _set_weight(self, cost: float) -> None:
        config = self._config
        error = cost - config.limit
        # Costs below the limit are not saved up: the weight would come too late.
        self._integral = min(max(0.0, self._integral + config.ki * error), config.max_weight)
        rising = max(0.0, cost - self._last_cost)
        self._last_cost = cost
        wanted = config.kp * error + self._integral + config.kd * rising
        self.weight = min(max(0.0, wanted), config.max_weight)

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as plain data."""
        return {
            "weight": self.weight,
            "integral": self._integral,
            "last_cost": self._last_cost,
            "running": self._running.copy(),
            "ended": np.array(self._ended, np.float64),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; raise a ValueError if it does not fit."""
        running, ended = (np.asarray(state[name], np.float64) for name in ("running", "ended"))
        numbers = [state[name] for name in _NUMBERS]
        if running.shape != self._running.shape or ended.ndim != 1:
            raise ValueError(f"the costs are of {running.shape} environments")
        if not all(is_number(number) for number in numbers):
            raise ValueError("the weight of the cost is not a number")
        self.weight, self._integral, self._last_cost = map(float, numbers)
        self._running, self._ended = running.copy(), ended.tolist()


def cost_of(info: Mapping[str, Any]) -> float:
    """Return the cost of a step: `cost` of its info, else how many limits it broke.

    Broken limits are those that `env.kwargs.safety` counts, a joint each.
    """
    if "cost" in info:
        return float(info["cost"])
    broken = info.get("violations")
    return float(sum(broken.values())) if isinstance(broken, Mapping) else 0.0


def require_priceable(space: Any, env_id: str) -> None:
    """Raise ConfigError for a goal environment, whose rewards hindsight replay computes anew."""
    if "desired_goal" in getattr(space, "spaces", {}):
        raise ConfigError(
            f"cost.limit cannot price the steps of {env_id}: hindsight replay computes the rewards "
            "of a goal environment from the goals alone. Set cost=null."
        )
