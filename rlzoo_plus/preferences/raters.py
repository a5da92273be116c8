"""Raters that answer from the true return, with the errors of people.

The kinds are those of B-Pref (Lee et al. 2021, arXiv:2111.03026): stochastic, myopic, mistaken,
skipping, and undecided. Thresholds are in terms of the returns of all clips, so that they mean the
same whatever the scale and the sign of the rewards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import numpy as np

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.preferences.clips import Clips
from rlzoo_plus.preferences.preference_folder import EQUAL, LEFT, RIGHT, SKIP

PERSON, NAME = "person", "synthetic"


@dataclass(frozen=True)
class SyntheticRater:
    """A rater whose answer to a pair depends on the pair and the seed alone."""

    beta: float = math.inf  # Rationality: a Boltzmann choice between two returns; infinite: exact
    gamma: float = 1.0  # Weight of a reward falls by it with each step before the clip's end
    mistake: float = 0.0  # Probability that left and right are swapped
    skip: float = 0.0  # Skips a pair if both returns are in this lowest share of all clips
    equal: float = 0.0  # Undecided if the returns differ by less than this many standard deviations
    seed: int = 0  # Chooses other errors

    def answers(self, clips: Clips) -> list[str]:
        """Return the answer to each pair of clips."""
        returns = np.array([self.worth(clip.rewards) for clip in clips.clips])
        rng = np.random.default_rng(self.seed)
        return [
            self._answer(float(returns[left]), float(returns[right]), returns, rng.random(2))
            for left, right in clips.pairs.tolist()
        ]

    def worth(self, rewards: np.ndarray) -> float:
        """Return what the rater thinks a clip is worth, from its rewards."""
        return float(np.sum(rewards * self.gamma ** np.arange(len(rewards) - 1, -1, -1)))

    def _answer(self, left: float, right: float, returns: np.ndarray, drawn: np.ndarray) -> str:
        if self.skip and max(left, right) < np.quantile(returns, self.skip):
            return SKIP
        difference = right - left
        if difference == 0 or abs(difference) < self.equal * np.std(returns):
            return EQUAL
        is_right = difference > 0
        if not math.isinf(self.beta):
            # Beyond, exp overflows, and the choice is certain.
            exponent = min(max(self.beta * difference, -500.0), 500.0)
            is_right = drawn[0] < 1.0 / (1.0 + math.exp(-exponent))
        if drawn[1] < self.mistake:
            is_right = not is_right
        return RIGHT if is_right else LEFT


_HIGHEST = {"beta": math.inf, "seed": 2.0**31, "equal": 100.0}


def make_rater(text: str) -> SyntheticRater | None:
    """Return the rater of `synthetic:beta=1,mistake=0.1`; None for `person`.

    Raises:
        ConfigError: There is no such rater.
    """
    name, _, settings = text.partition(":")
    if text == PERSON:
        return None
    if name != NAME:
        raise ConfigError(unknown_name("--rater", printable(name, 40), (PERSON, NAME)))
    given: dict[str, float] = {}
    names = [field.name for field in fields(SyntheticRater)]
    for setting in filter(None, settings.split(",")):
        key, _, value = setting.partition("=")
        if key not in names:
            raise ConfigError(unknown_name(f"setting of --rater {NAME}", printable(key, 40), names))
        highest = _HIGHEST.get(key, 1.0)
        try:
            given[key] = int(value) if key == "seed" else float(value)
            if not 0.0 <= given[key] <= highest:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"--rater {printable(setting, 40)}: must be a number from 0 to {highest:g}, as in "
                f"{NAME}:{key}={min(highest, 1):g}."
            ) from None
    return SyntheticRater(**given)  # type: ignore[arg-type]
