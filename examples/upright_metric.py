"""A metric of evaluation episodes: how long a cart-pole stays close to upright.

    rlzoo-plus train env=cartpole_bullet 'eval.metrics=[upright_metric.Upright]'
    rlzoo-plus train 'eval.metrics=[{upright_metric.Upright: {within_rad: 0.02}}]'
    rlzoo-plus evaluate latest --trust 'eval.metrics=[upright_metric.Upright]'

The means over the episodes are in evaluations.jsonl, TensorBoard and trackers as
`eval/upright/share` and `eval/upright/worst_rad`; a single number would be `eval/upright`.
"""

import math
from collections.abc import Mapping
from typing import Any


class Upright:
    """Share of the steps with the pole within an angle, and the largest angle."""

    def __init__(self, within_rad: float = 0.05) -> None:
        """Set the angle.

        Args:
            within_rad: Largest angle that counts as upright [rad].
        """
        self.within_rad = within_rad

    def begin(self) -> None:
        """Forget the episode before."""
        self.n_steps = self.n_upright = 0
        self.worst_rad = 0.0

    def step(self, observation: Any, action: Any, reward: float, info: Mapping[str, Any]) -> None:
        """Look at the pole: the third and fourth entries are the sine and cosine of its angle."""
        del action, reward, info
        angle = abs(math.atan2(observation[2], observation[3]))
        self.n_steps += 1
        self.n_upright += angle <= self.within_rad
        self.worst_rad = max(self.worst_rad, angle)

    def end(self) -> dict[str, float]:
        """Return the two numbers of the episode."""
        return {"share": self.n_upright / max(self.n_steps, 1), "worst_rad": self.worst_rad}
