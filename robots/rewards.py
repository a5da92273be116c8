"""Building blocks of reward terms: functions of arrays, one value per world."""

import math
from typing import Literal

import numpy as np

from robots.elementary import exp
from robots.frames import Floats

Slope = Literal["gaussian", "linear"]


def tolerance(
    x: Floats,
    bounds: tuple[float, float] = (0.0, 0.0),
    margin: float = 0.0,
    value_at_margin: float = 0.1,
    slope: Slope = "gaussian",
) -> Floats:
    """Return 1 where ``x`` lies within the bounds, falling towards 0 outside of them.

    The idea is that of dm_control (Tassa et al. 2018, https://arxiv.org/abs/1801.00690, section
    "Reward"): terms in [0, 1] whose shape is given by numbers in the units of ``x``, and which
    stay in [0, 1] when multiplied.

    Args:
        x: Values in any unit, any shape; or a float.
        bounds: Lowest and highest value that count as good, in the unit of ``x``.
        margin: Distance from the bounds at which the result is ``value_at_margin``, in the unit
            of ``x``; 0 makes a step.
        value_at_margin: Result at that distance; inside (0, 1) for "gaussian", [0, 1) for
            "linear".
        slope: "gaussian" never quite reaches 0; "linear" is 0 from some distance on.

    Returns:
        Values in [0, 1] of the shape of ``x``.

    Raises:
        ValueError: If the bounds are reversed, the margin is negative, or ``value_at_margin`` or
            ``slope`` is not allowed.
    """
    lower, upper = bounds
    if lower > upper or margin < 0:
        raise ValueError(
            f"bounds={bounds} must be (low, high) and margin={margin} at least 0. "
            "Swap the bounds, or widen the margin."
        )
    if margin == 0:
        return 1.0 * ((lower <= x) & (x <= upper))
    # The distance may have a sign: squares do not need it, and it saves time.
    distance = x - lower if lower == upper else np.maximum(np.maximum(lower - x, x - upper), 0.0)
    if slope == "gaussian" and 0 < value_at_margin < 1:
        scaled = distance / margin
        bell: Floats = exp(math.log(value_at_margin) * (scaled * scaled))
        return bell
    if slope == "linear" and 0 <= value_at_margin < 1:
        slope_per_unit = (1.0 - value_at_margin) / margin
        line: Floats = np.maximum(1.0 - slope_per_unit * abs(distance), 0.0)
        return line
    raise ValueError(
        f"slope={slope!r} with value_at_margin={value_at_margin} is not allowed. Use 'gaussian' "
        "with a value inside (0, 1), or 'linear' with a value in [0, 1)."
    )
