"""The condition that `bisect` looks for: `METRIC OP NUMBER`, or `nan`."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError

NAN = "nan"
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_CONDITION = re.compile(rf"\s*([\w./ -]*?[\w.])\s*(<=|>=|<|>)\s*({_NUMBER})\s*", re.ASCII)
_LONGEST = 200


@dataclass(frozen=True)
class Condition:
    """A comparison of a logged metric with a number; or that any number is not finite."""

    metric: str  # as in metrics.jsonl; `nan` for weights, gradients and losses
    sign: str = ""  # empty for `nan`
    number: float = math.nan

    @property
    def is_nan(self) -> bool:
        """Whether it holds as soon as a weight, a gradient or a loss is not finite."""
        return not self.sign

    @property
    def is_of_update(self) -> bool:
        """Whether it is about what an update logs, and not about episodes or evaluations."""
        return self.is_nan or self.metric.startswith("train/")

    def holds(self, values: Mapping[str, object]) -> bool:
        """Return whether it holds for logged values; a value that is not finite meets only `nan`.

        A metric that was not logged does not meet it.
        """
        if self.is_nan:
            # Others, as the explained variance, may be NaN in a healthy run.
            return any(name.endswith("loss") and _is_lost(v) for name, v in values.items())
        value = finite(values.get(self.metric))
        return value is not None and _OPERATORS[self.sign](value, self.number)

    def __str__(self) -> str:
        return NAN if self.is_nan else f"{self.metric} {self.sign} {self.number:g}"


def parse_condition(text: str) -> Condition:
    """Read a condition; nothing is evaluated.

    Raises:
        ConfigError: It is neither `nan` nor a comparison.
    """
    if text.strip().lower() == NAN:
        return Condition(NAN)
    found = _CONDITION.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None or not math.isfinite(float(found[3])):
        raise ConfigError(
            f"--when {printable(text, 60)!r}: must be METRIC OP NUMBER, with one of "
            f"{' '.join(_OPERATORS)}, or nan. For example: 'rollout/ep_rew_mean < 50', "
            "'train/approx_kl > 0.5'."
        )
    if found[1].startswith(("time/", "perf/", "system/")):
        raise ConfigError(
            f"--when {printable(text, 60)!r}: {found[1]} depends on the clock and is not the same "
            "in a replay. Choose a metric of train/, rollout/ or eval/."
        )
    return Condition(found[1], found[2], float(found[3]))


def _is_lost(value: object) -> bool:
    # In metrics.jsonl such a number is null.
    return value is None or (isinstance(value, float) and not math.isfinite(value))
