"""How far one step of a simulation is from a log of a robot, and what would close the gap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.identification import RunOf, read_log
from rlzoo_plus.identify.logs import Log
from rlzoo_plus.identify.parameters import LATENCY, Parameter
from rlzoo_plus.identify.worlds import Worlds
from robots.distributions import read_distribution

Floats = NDArray[np.float64]
_MOST_ROWS, _FEWEST = 400, 50
_LATENCIES = 6
# Values that are tried of each parameter: `u` is 0 for the nominal robot.
_TRIED = (-1.5, -1.0, -0.6, -0.3, 0.3, 0.6, 1.0, 1.5, 2.0, 3.0)
# What closes less of the gap is not worth a randomization.
_GAIN = 0.05


@dataclass(frozen=True)
class Cover:
    """A parameter whose other value closes a part of the gap."""

    parameter: Parameter
    value: float  # Which of those tried does best
    gain: float  # Share of the squared error that it takes away
    trained: str  # What the run's randomization says of it
    is_covered: bool  # Whether that holds the value


@dataclass(frozen=True)
class Gap:
    """One-step errors of a simulation against a log."""

    joints: tuple[str, ...]
    n_rows: int
    position_error: Floats  # Root of the mean square [rad or m], shape (n_joints,)
    velocity_error: Floats  # [rad/s or m/s], shape (n_joints,)
    position_step: Floats  # How far a joint moves in a step, the same way
    velocity_step: Floats
    latency_errors: tuple[float, ...]  # Of 0, 1, ... steps on top of the run's, as shares of motion
    covers: tuple[Cover, ...]
    latency_is_covered: bool  # Whether the run was trained with the best latency

    @property
    def latency(self) -> int:
        """Control steps of latency, on top of those of the run, that fit best."""
        return int(np.argmin(self.latency_errors))

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = ("position_error", "velocity_error", "position_step", "velocity_step")
        columns = {name: getattr(self, name).tolist() for name in names}
        rows = {
            joint: {name: column[at] for name, column in columns.items()}
            for at, joint in enumerate(self.joints)
        }
        return {
            "n_rows": self.n_rows,
            "joints": rows,
            "latency": self.latency,
            "latency_errors": list(self.latency_errors),
            "covers": [
                {
                    **{"parameter": str(one.parameter), "value": one.value, "gain": one.gain},
                    **{"trained_with": one.trained, "is_covered": one.is_covered},
                }
                for one in self.covers
            ],
        }

    @staticmethod
    def _mend(one: Cover) -> str:
        low, high = sorted((one.parameter.nominal, one.value))
        given = f"{{uniform: [{0.95 * low:.3g}, {1.05 * high:.3g}]}}"
        if one.parameter.joint is not None:
            given = f"{{joints: {{{one.parameter.joint}: {given}}}}}"
        return (
            f"trained with {one.trained}. To cover it: "
            f"'env.kwargs.randomization={{{one.parameter.name}: {given}}}'"
        )

    def table(self) -> str:
        """Return it as text."""
        rows: list[tuple[str, ...]] = [
            ("joint", "position error", "of a step", "velocity error", "of a step")
        ]
        for at, joint in enumerate(self.joints):
            cells = []
            for error, step in (
                (self.position_error[at], self.position_step[at]),
                (self.velocity_error[at], self.velocity_step[at]),
            ):
                cells += [f"{error:.3g}", f"{error / step:.0%}" if step > 0 else "-"]
            rows.append((printable(joint), *cells))
        lines = aligned(rows, right=rows[0][1:])
        if self.latency:
            known = "" if self.latency_is_covered else ", which it was not trained with"
            lines.append(
                f"the log is {self.latency} control steps later than the simulation{known}"
            )
        if not self.covers:
            lines.append(f"no single parameter closes {_GAIN:.0%} of the gap")
        for one in self.covers:
            lines.append(
                f"{printable(one.parameter)} {one.value:.3g} in place of "
                f"{one.parameter.nominal:g} closes {one.gain:.0%} of the gap; "
                + (f"trained with {one.trained}" if one.is_covered else self._mend(one))
            )
        if self.covers[1:]:
            lines.append("`rlzoo-plus identify` tells what these share, and fits all together")
        return "\n".join(lines)


def measure_gap(path: Path, spec: EnvConfig, run_of: RunOf) -> tuple[Gap, list[str]]:
    """Compare a log with the environment that a policy was trained in, step by step.

    Args:
        path: A CSV, or saved episodes.
        spec: The run's environment.
        run_of: Returns the run that played a saved episode.

    Returns:
        The gap, and what was left out of the log.

    Raises:
        ConfigError: The log is not valid, too short, or of another robot.
    """
    randomization = spec.kwargs.get("randomization") or {}
    with Worlds(spec) as worlds:
        log = read_log(path, worlds.env, run_of)
        steps = [_Steps(worlds, log, latency) for latency in range(_LATENCIES)]
        nominal = np.zeros(len(worlds.parameters))
        by_latency = [one.error(nominal) for one in steps]
        best = steps[int(np.argmin([one.mean() for one in by_latency]))]
        plain = by_latency[0]
        covers = _covers(worlds.parameters, best, randomization)
        n = worlds.n_joints
        names = tuple(joint.name for joint in worlds.env.robot.joints)
    errors, motion = np.sqrt(plain) * steps[0].scale, steps[0].scale
    latencies = tuple(float(np.sqrt(one.mean())) for one in by_latency)
    _, is_covered = _trained(randomization, LATENCY, None, float(np.argmin(latencies)), 0.0)
    gap = Gap(
        names, len(steps[0]), errors[:n], errors[n : 2 * n], motion[:n], motion[n : 2 * n],
        latencies, covers, is_covered,
    )  # fmt: skip
    return gap, log.notes


class _Steps:
    """Single steps of a log at one latency."""

    def __init__(self, worlds: Worlds, log: Log, latency: int) -> None:
        self._worlds, self._are_targets = worlds, log.are_targets
        starts, commands, ends = [], [], []
        for one in log.stretches:
            arrived = worlds.arrivals(one.commands, worlds.latency + latency, log.are_targets)
            # The same rows for all latencies.
            first = worlds.latency + _LATENCIES - 1
            starts.append(one.states[first:-1])
            commands.append(arrived[first:-1])
            ends.append(one.states[first + 1 :])
        count = sum(map(len, starts))
        if count < _FEWEST:
            raise ConfigError(
                f"the log has {log.n_rows} rows in {len(log.stretches)} stretches without gaps, of "
                f"which {count} can be compared; {_FEWEST} are needed. Log more, one row for each "
                "control step."
            )
        chosen = np.unique(np.linspace(0, count - 1, min(_MOST_ROWS, count)).round()).astype(int)
        self._starts, self._commands, self._ends = (
            np.concatenate(parts)[chosen] for parts in (starts, commands, ends)
        )
        changes = worlds.errors(self._ends, self._starts)
        self.scale: Floats = np.sqrt((changes**2).mean(axis=0))

    def __len__(self) -> int:
        return len(self._starts)

    def error(self, u: Floats) -> Floats:
        """Return the mean squares of the errors, as shares of those of the motion."""
        values = np.broadcast_to(u, (len(self), len(u)))
        found = self._worlds.follow(
            self._worlds.parameters, values, self._starts, self._commands[:, None],
            self._are_targets,
        )  # fmt: skip
        errors = self._worlds.errors(found[:, 0], self._ends)
        squares: Floats = (errors**2).mean(axis=0)
        return np.divide(squares, self.scale**2, out=np.zeros_like(squares), where=self.scale > 0)


def _covers(
    parameters: Sequence[Parameter], steps: _Steps, randomization: Mapping[str, Any]
) -> tuple[Cover, ...]:
    """Return the parameters that close a part of the gap, the best first."""
    nominal = np.zeros(len(parameters))
    plain = steps.error(nominal).mean()
    found = []
    for number, parameter in enumerate(parameters):
        tried = [u for u in _TRIED if parameter.is_factor or u > 0]
        errors = [steps.error(nominal + u * (np.arange(len(nominal)) == number)) for u in tried]
        means = [float(error.mean()) for error in errors]
        best = int(np.argmin(means))
        gain = 1 - means[best] / plain if plain > 0 else 0.0
        if gain < _GAIN:
            continue
        value = float(parameter.value(tried[best]))
        trained = _trained(randomization, parameter.name, parameter.joint, value, parameter.nominal)
        found.append(Cover(parameter, value, gain, *trained))
    return tuple(sorted(found, key=lambda one: -one.gain))


def _trained(
    randomization: Mapping[str, Any], name: str, joint: str | None, value: float, nominal: float
) -> tuple[str, bool]:
    """Return what a randomization says of a parameter, and whether it holds a value."""
    given = randomization.get(name)
    if isinstance(given, Mapping) and "joints" in given:
        given = given["joints"].get(joint)
    if given is None:
        return "none", value == nominal
    drawn = read_distribution(name, given, nominal)
    return f"{drawn.low:g} to {drawn.high:g}", drawn.low <= value <= drawn.high
