"""Least squares over segments: the parameters, how sure they are, and what a log cannot tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.identify.logs import Log
from rlzoo_plus.identify.parameters import LATENCY, OF_JOINTS, Parameter, with_known
from rlzoo_plus.identify.shooting import Segments
from rlzoo_plus.identify.worlds import Worlds

Floats = NDArray[np.float64]
TOLD, ROUGHLY, NOT_TOLD, HELD, KNOWN = "told", "roughly", "not told", "held", "known"
# Told: 19 of 20 intervals hold the true value, and this is half of their width.
TOLD_WITHIN = 0.10
_DEVIATIONS = 2.0
# Roughly: the log leaves at most this of how far the parameter may be off without it.
_NARROWED = 0.5
# Beyond so many spreads what was assumed of a parameter is wrong.
_FAR, _WIDER, _MOST_WIDENED = 2.0, 10.0, 3
# A parameter is held that makes another one this much surer.
_SURER = 3.0
_MOST_STEPS, _LONGEST_STEP = 8, 1.5
# A step that is shorter than this, in deviations of what is found, is the last.
_SHORT = 0.5
_FIRST_NOISE, _LEAST_NOISE = 0.03, 1e-7
_STEPS_OF_LATENCY = 2
_FOR_LATENCY, _FOR_RATIOS = 30, 80
_WORSE = 3.0
LATENCIES = 8
_LEAST_SHARE = 0.5


@dataclass(frozen=True)
class Estimate:
    """What is known of one parameter."""

    parameter: Parameter
    value: float  # The most likely one
    low: float  # The lowest that the log leaves, with 19 of 20 chances
    high: float
    wide: tuple[float, float]  # The same with three deviations, to train with
    status: str  # `TOLD`, `ROUGHLY`, `NOT_TOLD`, `HELD` or `KNOWN`
    given: tuple[str, ...] = ()  # What is held where the log tells only a ratio to it


@dataclass(frozen=True)
class Fit:
    """What a log says about a robot."""

    estimates: list[Estimate]
    latencies: tuple[int, ...]  # Those that the log leaves, the best first
    latency_status: str  # `TOLD`, `NOT_TOLD` or `KNOWN`
    noise: Floats  # Standard deviation of the measurements' noise, shape (n_errors,)
    share: Floats  # Of the motion within segments what the simulation explains, shape (n_errors,)
    nominal_share: Floats  # The same without a fit
    segments: Segments
    simulated: Floats  # The segments, as fitted
    nominal: Floats  # The same without a fit


@dataclass
class _Solution:
    u: Floats
    changes: Floats  # Of the starts
    noise: Floats
    residuals: Floats
    projected: Floats  # Weighted residuals without what other starts would explain
    slopes: Floats  # The same of their derivatives, shape (n, n_numbers, n_free)

    @property
    def costs(self) -> Floats:
        """Weighted squares of each segment."""
        squares: Floats = (self.projected**2).sum(axis=1)
        return squares


class _Point(NamedTuple):
    """Where a search stands."""

    u: Floats
    changes: Floats  # Of the starts
    residuals: Floats
    slopes: Floats | None  # Derivatives of the residuals by the free parameters, if they are known


class _Problem:
    """Least squares over some segments, for parameters of which some are free."""

    def __init__(
        self, segments: Segments, parameters: Sequence[Parameter], free: Sequence[int]
    ) -> None:
        self.segments, self.parameters, self.free = segments, list(parameters), list(free)
        self._may_be_negative = np.array([parameters[i].is_factor for i in free], bool)

    def solve(
        self, u: Floats, noise: Floats | None = None, steps: int = _MOST_STEPS, rounds: int = 2
    ) -> _Solution:
        """Return the solution near ``u``.

        Args:
            u: Where to begin.
            noise: Deviation of the noise; estimated after each round but the last if not given.
            steps: Gauss-Newton steps in a round, at most.
            rounds: How often they are taken, with a better estimate of the noise.
        """
        segments = self.segments
        changes = np.zeros((len(segments), segments.n_errors))
        sigma = _FIRST_NOISE * segments.scale if noise is None else noise
        by_starts = segments.by_starts(self.parameters, u, changes)
        residuals = segments.residuals(self.parameters, u, changes)
        point = _Point(u, changes, residuals, None)
        point, found = self._descend(point, sigma, by_starts, steps)
        for _ in range(rounds - 1 if noise is None else 0):
            least = _LEAST_NOISE * segments.scale
            sigma = np.maximum(self._noise_of(found, by_starts, sigma), least)
            point, found = self._descend(point, sigma, by_starts, steps)
        return found

    def _descend(
        self, point: _Point, sigma: Floats, by_starts: Floats, steps: int
    ) -> tuple[_Point, _Solution]:
        """Take Gauss-Newton steps until they gain nothing."""
        segments, free, rows = self.segments, self.free, (len(self.segments), -1)
        q, r = np.linalg.qr((by_starts / sigma[:, None]).reshape(*rows, segments.n_errors))
        into = q.transpose(0, 2, 1)

        def without_starts(values: Floats) -> Floats:
            """Take away what other starts would explain."""
            rest: Floats = values - q @ (into @ values)
            return rest

        for _ in range(steps):
            raw = point.slopes
            if raw is None:
                raw = segments.by_parameters(self.parameters, point.u, point.changes, free)
            slopes = (raw / sigma[:, None]).reshape(*rows, len(free))
            weighted = (point.residuals / sigma).reshape(*rows, 1)
            own = without_starts(slopes)
            move = self._step(point.u[free], without_starts(weighted)[..., 0], own)
            cost = (weighted**2).sum() + (point.u**2).sum()
            point = point._replace(slopes=raw)
            length = self._length(move, own)
            for part in (1.0, 0.5, 0.25, 0.0625):
                u = point.u.copy()
                u[free] += part * move
                # A linear step to the best starts, with the parameters' step.
                explained = weighted[..., 0] + part * (slopes @ move)
                shift = np.linalg.solve(r, -(into @ explained[..., None]))[..., 0]
                changes = point.changes + shift
                after = segments.residuals(self.parameters, u, changes)
                if ((after / sigma) ** 2).sum() + (u**2).sum() < cost:
                    # Of a short step the derivatives are those of its end, too.
                    near = length < _SHORT
                    point = _Point(u, changes, after, raw if near else None)
                    break
            else:
                break
            if near:
                break
        weighted = (point.residuals / sigma).reshape(*rows, 1)
        rest = without_starts(weighted)[..., 0]
        return point, _Solution(point.u, point.changes, sigma, point.residuals, rest, own)

    def _length(self, move: Floats, slopes: Floats) -> float:
        """Return the length of a step in deviations of what is found."""
        return float(np.sqrt(((slopes @ move) ** 2).sum() + move @ move))

    def _step(self, u: Floats, residuals: Floats, slopes: Floats) -> Floats:
        """Return the step of the free parameters; none that is added becomes negative."""
        normal = np.einsum("smi,smj->ij", slopes, slopes) + np.eye(len(u))
        right = -np.einsum("smi,sm->i", slopes, residuals) - u
        move, fixed = np.zeros(len(u)), np.zeros(len(u), bool)
        for _ in range(len(u) + 1):
            move[fixed] = -u[fixed]
            rest = np.flatnonzero(~fixed)
            pulled = right[rest] - normal[np.ix_(rest, np.flatnonzero(fixed))] @ move[fixed]
            move[rest] = np.linalg.solve(normal[np.ix_(rest, rest)], pulled)
            below = ~fixed & ~self._may_be_negative & (u + move < 0)
            if not below.any():
                break
            fixed |= below
        longest = np.abs(move).max(initial=0.0)
        return move * min(1.0, _LONGEST_STEP / longest) if longest else move

    def _noise_of(self, found: _Solution, by_starts: Floats, sigma: Floats) -> Floats:
        """Return the deviation of each number's residuals, less what the fit follows of them."""
        rows = (len(self.segments), -1)
        q, _ = np.linalg.qr((by_starts / sigma[:, None]).reshape(*rows, self.segments.n_errors))
        followed = (q**2).sum(axis=2).reshape(by_starts.shape[:3]).sum(axis=(0, 1))
        whole = found.projected.reshape(by_starts.shape[:3]) * sigma
        left = np.maximum(whole.shape[0] * whole.shape[1] - followed, 1.0)
        deviation: Floats = np.sqrt((whole**2).sum(axis=(0, 1)) / left)
        return deviation

    def covariance(self, found: _Solution) -> tuple[Floats, Floats]:
        """Return the covariance of the free parameters, and the information about them.

        Segments count as the independent samples, so that errors that last for a segment, as those
        of a wrong model do, widen it.
        """
        slopes, count = found.slopes, len(self.segments)
        normal = np.einsum("smi,smj->ij", slopes, slopes)
        each = np.einsum("smi,sm->si", slopes, found.projected)
        each -= each.mean(axis=0)
        spread = each.T @ each * count / max(count - len(self.free), 1)
        # Not below what noise alone gives: few segments can agree by chance.
        rest = found.projected.shape[1] - self.segments.n_errors
        left = max(found.costs.sum() / (count * rest), 1e-12)
        whole = normal + np.eye(len(self.free))
        inverse = np.linalg.inv(whole)
        robust = inverse @ (spread + np.eye(len(self.free))) @ inverse
        plain = inverse @ (left * normal + np.eye(len(self.free))) @ inverse
        wider = np.sqrt(np.maximum(1.0, np.diag(plain) / np.maximum(np.diag(robust), 1e-300)))
        return robust * np.outer(wider, wider), whole


def fit(worlds: Worlds, log: Log, known: dict[str, float]) -> Fit:
    """Fit everything that is not known.

    Raises:
        ConfigError: The log is too short, or of another robot.
    """
    parameters, u = with_known(worlds.parameters, known)
    free = [i for i, p in enumerate(parameters) if str(p) not in known]
    latencies, status, start = _latencies(worlds, log, known, parameters, u, free)
    best = latencies[0]
    few = Segments(worlds, log, best, most=_FOR_RATIOS)
    near, noise, held, given = _without_ratios(few, parameters, start, free)
    rest = [i for i in free if i not in held]
    segments = Segments(worlds, log, best)
    problem, found = _solved(segments, parameters, near, noise, rest)
    covariance, _ = problem.covariance(found)
    deviations = dict(zip(rest, np.sqrt(np.diag(covariance)), strict=True))
    estimates = []
    for number, parameter in enumerate(parameters):
        if number in deviations:
            names = tuple(str(parameters[i]) for i in given.get(number, ()))
            estimates.append(_estimate(parameter, found.u[number], deviations[number], names))
        else:
            value = float(parameter.value(found.u[number]))
            state = KNOWN if str(parameter) in known else HELD
            estimates.append(Estimate(parameter, value, value, value, (value, value), state))
    simulated = segments.simulated(parameters, found.u, segments.starts(found.changes))
    nominal = segments.simulated(parameters, u, segments.measured[:, 0])
    # From the measured starts: others explain a part of anything.
    followed = segments.simulated(parameters, found.u, segments.measured[:, 0])
    share = _share(worlds, segments, followed)
    if share.max() < _LEAST_SHARE:
        raise ConfigError(
            f"no values make the simulation follow the log: it explains at most "
            f"{max(share.max(), 0.0):.0%} of the motion of any joint. Is it of this robot, with "
            "this env=..., and are its units m, rad, m/s and rad/s?"
        )
    nominal_share = _share(worlds, segments, nominal)
    parts = segments, simulated, nominal
    return Fit(estimates, latencies, status, noise, share, nominal_share, *parts)


def _solved(
    segments: Segments, parameters: list[Parameter], u: Floats, noise: Floats, free: list[int]
) -> tuple[_Problem, _Solution]:
    """Fit, and fit again where a value is far beyond what was assumed: that would hold it back.

    Such parameters are given a wider spread, in place.
    """
    problem = _Problem(segments, parameters, free)
    found = problem.solve(u, noise)
    for _ in range(_MOST_WIDENED):
        far = [i for i in free if not parameters[i].is_factor and found.u[i] > _FAR]
        if not far:
            break
        u = found.u.copy()
        for i in far:
            parameters[i] = replace(parameters[i], spread=_WIDER * parameters[i].spread)
            u[i] /= _WIDER
        problem = _Problem(segments, parameters, free)
        found = problem.solve(u, noise)
    return problem, found


def _share(worlds: Worlds, segments: Segments, simulated: Floats) -> Floats:
    """Return the share of the motion within segments that is explained, for each number."""
    errors = worlds.errors(simulated[:, 1:], segments.measured[:, 1:])
    share: Floats = 1.0 - (errors**2).mean(axis=(0, 1)) / segments.scale**2
    return share


def _estimate(parameter: Parameter, u: float, deviation: float, given: tuple[str, ...]) -> Estimate:
    lowest = -np.inf if parameter.is_factor else 0.0

    def within(deviations: float) -> tuple[float, float]:
        ends = np.array([u - deviations * deviation, u + deviations * deviation])
        low, high = parameter.value(np.maximum(ends, lowest)).tolist()
        return low, high

    value, (low, high) = float(parameter.value(u)), within(_DEVIATIONS)
    status = ROUGHLY if deviation < _NARROWED else NOT_TOLD
    if high - value <= TOLD_WITHIN * value and value - low <= TOLD_WITHIN * value:
        status = TOLD
    return Estimate(parameter, value, low, high, within(1.5 * _DEVIATIONS), status, given)


def _without_ratios(
    segments: Segments, parameters: list[Parameter], u: Floats, free: list[int]
) -> tuple[Floats, Floats, list[int], dict[int, tuple[int, ...]]]:
    """Fit, and hold what only a ratio to others is told of.

    Returns:
        A first solution, its noise, what is held, and of each parameter what it is told in a
        ratio to.
    """
    held = _scale(parameters, u, free)
    scaled = [i for i in free if parameters[i].name in ("mass", *OF_JOINTS)]
    given: dict[int, tuple[int, ...]] = dict.fromkeys(scaled, tuple(held)) if held else {}
    order = ["motor_strength", "armature", "joint_friction", "joint_damping", "friction", "mass"]
    candidates = sorted(free, key=lambda i: order.index(parameters[i].name))
    while True:
        rest = [i for i in free if i not in held]
        problem = _Problem(segments, parameters, rest)
        start = np.array([0.0 if i in held else u[i] for i in range(len(u))])
        found = problem.solve(start)
        u = found.u
        covariance, information = problem.covariance(found)
        deviations = np.sqrt(np.diag(covariance))
        status = [
            _estimate(parameters[i], found.u[i], d, ()).status
            for i, d in zip(rest, deviations, strict=True)
        ]
        unsure = [k for k, one in enumerate(status) if one != TOLD]
        # By the information alone, since that of a held one leaves the others as they are.
        alone = np.sqrt(np.diag(np.linalg.inv(information)))
        for candidate in (c for c in candidates if c in rest and rest.index(c) in unsure):
            at = rest.index(candidate)
            kept = [k for k in range(len(rest)) if k != at]
            surer = np.sqrt(np.diag(np.linalg.inv(information[np.ix_(kept, kept)])))
            gained = [
                k
                for k, d in zip(kept, surer, strict=True)
                if k in unsure and (d < alone[k] / _SURER)
            ]
            if gained:
                held.append(candidate)
                for k in gained:
                    given[rest[k]] = (*given.get(rest[k], ()), candidate)
                given.pop(candidate, None)
                break
        else:
            return u, found.noise, held, given


def _scale(parameters: list[Parameter], u: Floats, free: list[int]) -> list[int]:
    """Return the motor strength if nothing that is known sets the scale of all forces.

    Masses, motors, damping, friction and armature all doubled, a robot moves as before. Numbers
    alone would hide that: errors of derivatives look like knowledge.
    """
    names = {parameters[i].name: i for i in free}
    known = [i for i, p in enumerate(parameters) if i not in free and not p.is_factor and u[i]]
    if {"mass", "motor_strength"} <= names.keys() and not known:
        return [names["motor_strength"]]
    return []


def _latencies(
    worlds: Worlds,
    log: Log,
    known: dict[str, float],
    parameters: list[Parameter],
    u: Floats,
    free: list[int],
) -> tuple[tuple[int, ...], str, Floats]:
    """Return the latencies that the log leaves, the best first, and a first solution."""
    if LATENCY in known:
        return (int(known[LATENCY]),), KNOWN, u
    solutions: list[_Solution] = []
    scores = []
    # The others change little of when a motion begins.
    free = [i for i in free if parameters[i].name not in ("armature", "joint_friction")]
    for latency in range(LATENCIES):
        segments = Segments(worlds, log, latency, first=LATENCIES - 1, most=_FOR_LATENCY)
        found = _Problem(segments, parameters, free).solve(u, steps=_STEPS_OF_LATENCY, rounds=1)
        solutions.append(found)
        spread = (found.projected.reshape(found.residuals.shape) * found.noise) ** 2
        least = (_LEAST_NOISE * segments.scale) ** 2
        scores.append(float(np.log(np.maximum(spread.mean(axis=(0, 1)), least)).sum()))
    best = int(np.argmin(scores))
    whole = solutions[best]
    deviations = (whole.projected.reshape(whole.residuals.shape) * whole.noise).std(axis=(0, 1))
    noise = np.maximum(deviations, _LEAST_NOISE * segments.scale)

    def costs_of(latency: int) -> Floats:
        segments = Segments(worlds, log, latency, first=LATENCIES - 1, most=_FOR_LATENCY)
        problem = _Problem(segments, parameters, free)
        return problem.solve(solutions[latency].u, noise, steps=1).costs

    least_costs, left = costs_of(best), [best]
    for way in (-1, 1):
        latency = best + way
        while 0 <= latency < LATENCIES:
            worse = costs_of(latency) - least_costs
            if worse.mean() > _WORSE * worse.std() / np.sqrt(len(worse)):
                break
            left.append(latency)
            latency += way
    return tuple(left), TOLD if len(left) == 1 else NOT_TOLD, whole.u
