"""A log cut into short segments, and how far simulated ones are from it.

Each segment starts in a state near the measured one, which is part of the fit: a start that is
measured with noise would otherwise bias what is found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.logs import Log
from rlzoo_plus.identify.parameters import Parameter
from rlzoo_plus.identify.worlds import Worlds

Floats = NDArray[np.float64]
_SEGMENT_S, _SHORTEST, _LONGEST = 0.4, 5, 20
_FEWEST, MOST = 12, 240
_STEP = 1e-4
_START_STEP = 1e-5


class Segments:
    """Segments of a log at one latency.

    Attributes:
        measured: States, shape (n, n_steps + 1, n_numbers).
        scale: Standard deviation of each number of an error over the log, shape (n_errors,).
        latency: Control steps by which the commands arrive late, those of the environment too.
    """

    def __init__(
        self,
        worlds: Worlds,
        log: Log,
        latency: int,
        *,
        first: int = 0,
        most: int = MOST,
    ) -> None:
        """Cut them.

        Args:
            worlds: What simulates them.
            log: What was measured.
            latency: Control steps of latency on top of those of the environment.
            first: Rows to leave out at the start of a stretch, if more than the latency.
            most: Number of segments, of which those are taken that lie evenly.

        Raises:
            ConfigError: The log is too short.
        """
        self._worlds, self._are_targets = worlds, log.are_targets
        self.latency = worlds.latency + latency
        step_s = worlds.env.simulation.step_s
        n_steps = int(np.clip(round(_SEGMENT_S / step_s), _SHORTEST, _LONGEST))
        states, commands = [], []
        for one in log.stretches:
            arrived = worlds.arrivals(one.commands, self.latency, log.are_targets)
            begin = max(worlds.latency + first, self.latency)
            for start in range(begin, len(one.states) - n_steps, n_steps + 1):
                states.append(one.states[start : start + n_steps + 1])
                commands.append(arrived[start : start + n_steps])
        if len(states) < _FEWEST:
            needed = (_FEWEST * (n_steps + 1) + first) * step_s
            raise ConfigError(
                f"the log has {log.n_rows} rows in {len(log.stretches)} stretches, which are "
                f"{len(states)} segments of {n_steps} control steps; {_FEWEST} are needed. Log at "
                f"least {needed:.0f} s, better a minute."
            )
        chosen = np.unique(np.linspace(0, len(states) - 1, min(most, len(states))).round())
        picked = chosen.astype(int)
        self.measured = np.array(states)[picked]
        self._commands = np.array(commands)[picked]
        middle = self.measured[:, :1]
        changes = worlds.errors(self.measured[:, 1:], middle)
        spread = np.sqrt((changes**2).mean(axis=(0, 1)))
        self.scale = np.maximum(spread, 1e-9 * max(spread.max(), 1e-9))
        self.n_errors = worlds.n_errors

    def __len__(self) -> int:
        return len(self.measured)

    def simulated(self, parameters: Sequence[Parameter], u: Floats, starts: Floats) -> Floats:
        """Return the segments as simulated from these starts, shape as ``measured``."""
        values = np.broadcast_to(u, (len(self), len(u)))
        return self._follow(parameters, values, starts)

    def _follow(self, parameters: Sequence[Parameter], values: Floats, starts: Floats) -> Floats:
        repeats = len(starts) // len(self)
        commands = np.tile(self._commands, (repeats, 1, 1))
        found = self._worlds.follow(parameters, values, starts, commands, self._are_targets)
        return np.concatenate([starts[:, None], found], axis=1)

    def starts(self, changes: Floats) -> Floats:
        """Return the measured starts, changed by errors of shape (n, n_errors)."""
        return self._worlds.moved(self.measured[:, 0], changes)

    def residuals(self, parameters: Sequence[Parameter], u: Floats, changes: Floats) -> Floats:
        """Return simulated less measured states, shape (n, n_steps + 1, n_errors)."""
        found = self.simulated(parameters, u, self.starts(changes))
        return self._worlds.errors(found, self.measured)

    def by_parameters(
        self, parameters: Sequence[Parameter], u: Floats, changes: Floats, free: Sequence[int]
    ) -> Floats:
        """Return the derivatives of ``residuals`` by some ``u``, one more last dimension."""
        starts = self.starts(changes)
        rows = [u] + [u + _STEP * (np.arange(len(u)) == column) for column in free]
        values = np.repeat(np.array(rows), len(self), axis=0)
        found = self._follow(parameters, values, np.tile(starts, (len(rows), 1)))
        return self._differences(found, len(rows), _STEP)

    def by_starts(self, parameters: Sequence[Parameter], u: Floats, changes: Floats) -> Floats:
        """Return the derivatives of ``residuals`` by the changes of their start."""
        steps = [np.zeros(self.n_errors), *(_START_STEP * np.eye(self.n_errors))]
        starts = np.concatenate([self.starts(changes + step) for step in steps])
        values = np.broadcast_to(u, (len(starts), len(u)))
        return self._differences(self._follow(parameters, values, starts), len(steps), _START_STEP)

    def _differences(self, found: Floats, count: int, step: float) -> Floats:
        first, *others = np.split(found, count)
        if not others:
            return np.zeros((*self.measured.shape[:2], self.n_errors, 0))
        return np.stack([self._worlds.errors(one, first) / step for one in others], axis=-1)
