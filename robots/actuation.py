"""What lies between a policy and its motors: latency, a limited rate, and their strength."""

from collections import deque
from numbers import Integral

import numpy as np
from numpy.typing import NDArray

from robots.distributions import read_number

Command = NDArray[np.float64]


class Actuation:
    """Delays actions and limits how fast they change, for one world.

    The reward sees the action that the policy chose; only the motors get what comes out here.

    Attributes:
        latency: Control steps by which actions arrive late in every episode.
        max_rate: Greatest change of an entry of the action from one step to the next, or None.
    """

    def __init__(self, n_actions: int, latency: int = 0, max_rate: float | None = None) -> None:
        """Set what holds for all episodes.

        Args:
            n_actions: Entries of an action.
            latency: Control steps by which actions arrive late.
            max_rate: Greatest change of an entry of the action, in [-1, 1], in a step; None: any.

        Raises:
            ValueError: If the latency is no whole number of at least 0, or the rate not positive.
        """
        is_whole = isinstance(latency, Integral) and not isinstance(latency, bool)
        if not is_whole or latency < 0:
            raise ValueError(
                f"latency={latency!r} must be a whole number of control steps, at least 0. "
                "Set for example latency=1."
            )
        if max_rate is not None and read_number("max_action_rate", max_rate, 0.0) == 0:
            raise ValueError(
                "max_action_rate=0 would never let an action change. Set for example "
                "max_action_rate=0.2, or null for no limit."
            )
        self.latency = int(latency)
        self.max_rate = max_rate
        self._rest = np.zeros(n_actions)
        self.begin()

    def begin(self, more_latency: int = 0) -> None:
        """Start an episode, in which zeros arrive until the first action does.

        Args:
            more_latency: Control steps added to the latency in this episode.
        """
        self._under_way = deque([self._rest] * (self.latency + more_latency))
        self._arrived = self._rest

    def arriving(self, command: Command) -> Command:
        """Return what reaches the motors in the step in which a command is given.

        Args:
            command: In [-1, 1], shape (n_actions,).
        """
        if self._under_way:
            self._under_way.append(command)
            command = self._under_way.popleft()
        if self.max_rate is not None:
            change = np.minimum(np.maximum(command - self._arrived, -self.max_rate), self.max_rate)
            command = self._arrived = self._arrived + change
        return command
