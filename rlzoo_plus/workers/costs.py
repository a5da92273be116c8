"""What the attempts at a sweep's runs took: interruptions, changed processors, time and money."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlzoo_plus.analysis.run_list import counted, duration
from rlzoo_plus.store.attempts import LOST, Attempt, Spent, dollars, read_attempts, sum_known
from rlzoo_plus.store.lease import RELEASED
from rlzoo_plus.store.live import LiveRecord

# Runs that are told one by one.
_MOST_TOLD = 10


@dataclass(frozen=True)
class RunCosts:
    """What the attempts at one run took."""

    attempts: tuple[Attempt, ...] = ()  # the newest attempts, the last one at the end
    spent: Spent = field(default_factory=Spent)  # sums over all attempts

    @property
    def interrupted(self) -> list[Attempt]:
        """The attempts that ended early, as far as they are known."""
        return [attempt for attempt in self.attempts if attempt.end in (RELEASED, LOST)]

    @property
    def n_interrupted(self) -> int:
        """How many attempts ended early; of forgotten ones all, since others followed them."""
        return len(self.interrupted) + self.spent.attempts - len(self.attempts)


@dataclass(frozen=True)
class SweepCosts:
    """What the attempts at all runs of a sweep took."""

    interrupted_runs: int  # number of runs with an attempt that ended early
    interruptions: int  # number of such attempts
    interrupted_seconds: float  # what they took, as far as they are known [s]
    interrupted_usd: float | None  # what they cost at most [$], None if no price is known
    changed_processor: int  # number of runs that were trained on several processors
    seconds: float  # what all attempts took [s]
    usd: float | None  # what they cost at most [$], None if no price is known


def costs_of_run(live: LiveRecord) -> RunCosts:
    """Return what the attempts at a run took, from its lease; nothing in that is trusted."""
    if "spent" not in live.record:
        return RunCosts()
    attempts, spent = read_attempts(live.record)
    if attempts and attempts[-1].end is None and not live.is_trained:
        attempts[-1] = replace(attempts[-1], end=LOST)
    return RunCosts(tuple(attempts), spent)


def costs_of_sweep(runs: Sequence[RunCosts]) -> SweepCosts:
    """Return the sums over runs."""
    ended = [attempt for run in runs for attempt in run.interrupted]
    return SweepCosts(
        interrupted_runs=sum(run.n_interrupted > 0 for run in runs),
        interruptions=sum(run.n_interrupted for run in runs),
        interrupted_seconds=round(math.fsum(attempt.seconds for attempt in ended), 3),
        interrupted_usd=sum_known(attempt.usd for attempt in ended),
        changed_processor=sum(len(run.spent.processors) > 1 for run in runs),
        seconds=round(math.fsum(run.spent.seconds for run in runs), 3),
        usd=sum_known(run.spent.usd for run in runs),
    )


def lines_of(runs: Mapping[str, RunCosts]) -> list[str]:
    """Return what a user should know of the costs of runs, by their keys; no lines if nothing."""
    costs = costs_of_sweep([*runs.values()])
    told = sorted(runs.items(), key=lambda item: -item[1].n_interrupted)[:_MOST_TOLD]
    lines = [
        f"interrupted: {key}: {counted(run.n_interrupted, 'time')}, {_interruption(run)}"
        for key, run in told
        if run.interrupted
    ]
    if costs.interruptions:
        ended = _amount(costs.interrupted_seconds, costs.interrupted_usd)
        count = counted(costs.interruptions, "time")
        lines.append(
            f"{counted(costs.interrupted_runs, 'run')} interrupted, {count}: those attempts took "
            f"{ended}"
        )
    if costs.changed_processor:
        lines.append(
            f"{counted(costs.changed_processor, 'run')} changed processor: `exact` is false in "
            "their results"
        )
    if costs.usd is not None:
        lines.append(f"spent: {_amount(costs.seconds, costs.usd)} at most, by all attempts")
    return lines


def _interruption(run: RunCosts) -> str:
    ended, last = run.interrupted, run.interrupted[-1]
    took = _amount(math.fsum(each.seconds for each in ended), sum_known(each.usd for each in ended))
    begin = "" if last.step is None else f" from step {last.step:,}"
    return f"{took}; last on {last.machine or last.worker}{begin}, {last.end}"


def _amount(seconds: float, usd: float | None) -> str:
    return duration(seconds) + ("" if usd is None else f" and {dollars(usd)}")
