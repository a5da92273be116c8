"""The observation statistics of a policy, without its training environment."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from rlzoo_plus.envs.spaces import Space, parts_of

Observation = np.ndarray | dict[str, np.ndarray]
_WHOLE = ""


@dataclass(frozen=True)
class ObservationNormalizer:
    """Normalises observations exactly as `VecNormalize` did at one moment."""

    # Running mean by key of a dictionary observation; the key is empty for a flat one
    mean: dict[str, np.ndarray]
    var: dict[str, np.ndarray]  # Running variance, the same way
    count: dict[str, float]  # Number of samples behind them, the same way
    clip: float  # Normalised observations are clipped to +-clip
    epsilon: float  # Added to the variance

    @classmethod
    def from_vec_normalize(cls, venv: VecNormalize | None) -> ObservationNormalizer | None:
        """Copy the current statistics; return None if observations are not normalised."""
        if venv is None or not venv.norm_obs:
            return None
        rms = venv.obs_rms if isinstance(venv.obs_rms, dict) else {_WHOLE: venv.obs_rms}
        return cls(
            mean={key: value.mean.copy() for key, value in rms.items()},
            var={key: value.var.copy() for key, value in rms.items()},
            count={key: float(value.count) for key, value in rms.items()},
            clip=float(venv.clip_obs),
            epsilon=float(venv.epsilon),
        )

    @classmethod
    def from_state(cls, state: dict[str, Any] | None) -> ObservationNormalizer | None:
        """Rebuild from `state()`.

        Raises:
            ValueError: It is not such a state.
        """
        if state is None:
            return None
        if state.keys() != cls.__dataclass_fields__.keys():
            raise ValueError("the normalisation has other parts than mean, var, count, ...")
        mean, var, count = state["mean"], state["var"], state["count"]
        are_mappings = all(isinstance(part, dict) for part in (mean, var, count))
        if not are_mappings or not mean.keys() == var.keys() == count.keys():
            raise ValueError("the normalisation's statistics are not of the same observations")
        for array in [*mean.values(), *var.values()]:
            if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
                raise ValueError("the normalisation's statistics are no arrays of numbers")
            if not np.isfinite(array).all():
                raise ValueError("the normalisation's statistics are not finite")
        for number in (state["clip"], state["epsilon"], *count.values()):
            if type(number) not in (int, float) or not number >= 0:
                raise ValueError(f"the normalisation's clip, epsilon or count is {number!r}")
        return cls(**state)

    def check_fits(self, space: Space) -> None:
        """Check that the statistics are of this space: others would broadcast silently.

        Raises:
            ValueError: They are not.
        """
        parts = parts_of(space)
        for key, mean in self.mean.items():
            shape = parts[key].shape if key in parts else None
            if mean.shape != shape or self.var[key].shape != shape:
                raise ValueError(f"the normalisation does not fit the observation {key!r}")

    def of(self, key: str) -> ObservationNormalizer | None:
        """Return that of one part alone, for a policy that sees nothing else; None without one."""
        if key not in self.mean:
            return None
        own: Any = {name: {_WHOLE: getattr(self, name)[key]} for name in ("mean", "var", "count")}
        return replace(self, **own)

    def state(self) -> dict[str, Any]:
        """Return the statistics as plain data with arrays."""
        state = {name: dict(getattr(self, name)) for name in ("mean", "var", "count")}
        return {**state, "clip": self.clip, "epsilon": self.epsilon}

    def __call__(self, observation: Observation) -> Observation:
        """Return the normalised observation, of the same shape, as float32."""
        if isinstance(observation, dict):
            # A policy acts without what its critic alone sees.
            keys = [key for key in self.mean if key in observation]
            known = {key: self._apply(observation[key], key) for key in keys}
            return {**observation, **known}
        return self._apply(observation, _WHOLE)

    def _apply(self, value: np.ndarray, key: str) -> np.ndarray:
        scaled = (value - self.mean[key]) / np.sqrt(self.var[key] + self.epsilon)
        clipped: np.ndarray = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return clipped


class OwnRows(RunningMeanStd):
    """Running statistics of a group's observations: rows of zeros are of other groups' agents."""

    def update(self, arr: np.ndarray) -> None:
        """Count rows in."""
        own = arr[arr.reshape(len(arr), -1).any(axis=1)]
        if len(own):
            super().update(own)
