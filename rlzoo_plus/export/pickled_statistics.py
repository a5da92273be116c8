"""The statistics in a `vecnormalize.pkl`, taken out without unpickling it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.agents.normalization import ObservationNormalizer
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.export.pickled_arrays import array_of, number_of, state_of
from rlzoo_plus.export.symbolic_pickle import PickleError, read_symbolic

MAX_BYTES = 64 * 2**20
_CONVERT = (
    "If you trust it, load it with Stable-Baselines3 and save it again: "
    "VecNormalize.load(path, venv).save(path)."
)


@dataclass(frozen=True)
class PickledStatistics:
    """What a `vecnormalize.pkl` says.

    Attributes:
        normalizer: Statistics of the observations, None if they are left alone.
        norm_reward: Whether rewards were normalised too.
        clip_reward: Normalised rewards were clipped to +-clip_reward.
    """

    normalizer: ObservationNormalizer | None
    norm_reward: bool
    clip_reward: float


def read_statistics(path: Path) -> PickledStatistics:
    """Read the statistics out of a `vecnormalize.pkl`; nothing that it names is run.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path} is larger than {MAX_BYTES // 2**20} MiB: no statistics.")
        return _statistics(read_symbolic(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error
    except PickleError as error:
        raise ConfigError(
            f"{path} was not taken: {error}. Nothing in it was executed. {_CONVERT}"
        ) from error


def _statistics(pickled: Any) -> PickledStatistics:
    state = state_of(pickled, "VecNormalize")
    reward = bool(state.get("norm_reward", True))
    clip_reward = _positive(state, "clip_reward")
    if not state.get("norm_obs", True):
        return PickledStatistics(None, reward, clip_reward)
    pickled_rms = state.get("obs_rms")
    parts = pickled_rms if isinstance(pickled_rms, dict) else {"": pickled_rms}
    if not parts or not all(isinstance(key, str) for key in parts):
        raise PickleError("it holds no statistics of observations")
    rms = {key: state_of(part, "RunningMeanStd") for key, part in parts.items()}
    normalizer = ObservationNormalizer(
        mean={key: _doubles(part.get("mean")) for key, part in rms.items()},
        var={key: _doubles(part.get("var")) for key, part in rms.items()},
        count={key: number_of(part.get("count")) for key, part in rms.items()},
        clip=_positive(state, "clip_obs"),
        epsilon=_positive(state, "epsilon"),
    )
    for key, mean in normalizer.mean.items():
        var = normalizer.var[key]
        is_sound = mean.shape == var.shape and np.isfinite(mean).all() and np.isfinite(var).all()
        if not is_sound or (var < 0).any():
            raise PickleError("its means and variances are no statistics")
    return PickledStatistics(normalizer, reward, clip_reward)


def _positive(state: dict[str, Any], name: str) -> float:
    value = number_of(state.get(name))
    if not (math.isfinite(value) and value > 0):
        raise PickleError(f"its {name} is {value}")
    return value


def _doubles(value: Any) -> np.ndarray:
    return array_of(value).astype(np.float64)
