"""The task of walking as commanded where no motion of the legs is given: steps are learned, too."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from robots.follow_velocity import FollowVelocity
from robots.frames import columns
from robots.sensors import Floats, State


class StepAndFollow(FollowVelocity):
    """Walk as commanded, and lift the feet in time with the clock that is observed.

    What follows the commands earns little before the robot can step, so that standing still would
    be learned. ``stepping`` shows the way, in the manner of Siekmann et al. (2021,
    https://arxiv.org/abs/2011.01387): which feet touch the ground is rewarded, not how the joints
    move. Actions are smoothed less than those that modulate a trot: the legs have to follow them.
    """

    smoothing: ClassVar[float] = 0.4
    reward_weights: ClassVar[Mapping[str, float]] = {
        **FollowVelocity.reward_weights,
        "forward": 0.3,
        "sideways": 0.25,
        "turn": 0.2,
        "posture": 0.08,
        "stepping": 0.17,
    }

    def __init__(self, *args: Any, pairs: Sequence[float], **options: Any) -> None:
        """Set what is commanded, and which legs step first.

        Args:
            args: See ``FollowVelocity``.
            pairs: 1 for the legs that step in the first half of the clock, -1 for the others.
            options: See ``FollowVelocity``.
        """
        super().__init__(*args, **options)
        self._pairs = tuple(pairs)

    def reward_terms(self, state: State, action: Floats) -> dict[str, Any]:
        """Return the terms of ``FollowVelocity``, and ``stepping``, each of shape (...).

        ``stepping``: the mean over the legs of the sine of the clock, positive where the foot is in
        the air in its half and on the ground in the other, negative the other way round, times
        pi / 2. Stepping in time earns 1 on average, standing still 0.
        """
        wave = np.sin(self._radians_per_step * np.asarray(state.memory["count"]))
        total: Any = 0.0
        for pair, touches in zip(self._pairs, columns(state.contact), strict=True):
            total = total + pair * wave * (1.0 - 2.0 * touches)
        stepping = total * (np.pi / 2.0 / len(self._pairs))
        return {**super().reward_terms(state, action), "stepping": stepping}
