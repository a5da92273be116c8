"""`NormalNoise`: normal action noise of Stable-Baselines3, the same numbers with fewer checks."""

from __future__ import annotations

from functools import cache

import numpy as np
from stable_baselines3.common.noise import NormalActionNoise


class NormalNoise(NormalActionNoise):
    """Gaussian action noise.

    `numpy.random.normal` looks at its arguments each time, which takes longer than the numbers.
    """

    def __call__(self) -> np.ndarray:
        """Return noise for one action, of the shape of the mean."""
        if np.shape(self._mu) != np.shape(self._sigma) or not _is_a_sum():
            return super().__call__()
        drawn = np.random.standard_normal(np.shape(self._mu))
        return (self._mu + self._sigma * drawn).astype(self._dtype)


@cache
def _is_a_sum() -> bool:
    """Return whether NumPy rounds normal numbers as the sum of mean and scaled standard ones.

    A processor may multiply and add in one operation.
    """
    mean, std = np.random.RandomState(0).uniform(0.1, 2.0, (2, 256))
    expected = np.random.RandomState(1).normal(mean, std)
    found = mean + std * np.random.RandomState(1).standard_normal(256)
    return np.array_equal(found, expected)
