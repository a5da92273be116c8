"""Pink action noise: noise whose power falls with the frequency (Eberhard et al., ICLR 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.noise import ActionNoise

_LENGTH = 1000  # Of a sequence where episodes have no limit


def pink_sequence(length: int, size: int) -> NDArray[np.float64]:
    """Return pink noise of variance 1, shape (length, size), from NumPy's global generator.

    White noise is scaled by 1 / sqrt(frequency); the mean, at frequency 0, as the lowest one.
    """
    frequencies = np.fft.rfftfreq(length)
    frequencies[0] = 1 / length
    scale = frequencies**-0.5
    real, imaginary = np.random.standard_normal((2, size, len(scale)))
    imaginary[:, 0] = 0
    power = 4 * scale**2
    power[0] = scale[0] ** 2
    if length % 2 == 0:
        # The highest frequency of an even number of steps has no phase.
        imaginary[:, -1] = 0
        power[-1] = scale[-1] ** 2
    sequence = np.fft.irfft(scale * (real + 1j * imaginary), length, axis=1)
    return np.ascontiguousarray(sequence.T * length / np.sqrt(power.sum()))


class PinkActionNoise(ActionNoise):
    """Pink noise for each dimension of an action, a new sequence for each episode.

    Its attributes are plain: a checkpoint holds the sequence and the place in it.
    """

    def __init__(
        self, mean: NDArray[np.float64], sigma: NDArray[np.float64], length: int | None = None
    ) -> None:
        """Initialize with a sequence of zeros; it is drawn at the first step.

        Args:
            mean: Of each dimension, shape (n,).
            sigma: Standard deviation of each dimension, shape (n,).
            length: Steps of a sequence: those of an episode.
        """
        super().__init__()
        self.mean, self.sigma = np.asarray(mean, float), np.asarray(sigma, float)
        self.length = max(length or _LENGTH, 2)
        self.sequence = np.zeros((self.length, self.mean.size))
        self.at = self.length

    def __call__(self) -> NDArray[np.float64]:
        """Return the noise of the next step, shape as that of an action."""
        if self.at >= self.length:
            self.sequence, self.at = pink_sequence(self.length, self.mean.size), 0
        noise: NDArray[np.float64] = self.sigma * self.sequence[self.at].reshape(self.mean.shape)
        self.at += 1
        return self.mean + noise

    def reset(self) -> None:
        """Begin a new sequence with the next step."""
        self.at = self.length
