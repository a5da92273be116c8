"""A budget of hours: which runs of a suite may start, going by how fast they train."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Sequence

from rlzoo_plus.analysis.run_list import counted, duration
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.sweeps.estimate import job_times, longest_episodes, probe_jobs
from rlzoo_plus.sweeps.sweep_job import SweepJob

# Time to measure a cell that has no finished run [s].
_PROBE_S, _TRIES = 6.0, 2


def probed(job: SweepJob) -> float | None:
    """Return the seconds a step of a job takes here with its evaluations; None if not known."""
    configs = [job.config]
    for _ in range(_TRIES):
        # On a busy machine the first one may end before the training has begun.
        result = probe_jobs(configs, _PROBE_S, is_sweep=True, compares=False)
        if times := job_times(result, configs, longest_episodes(configs)):
            return times[0].seconds / job.config.n_timesteps
    return None


class Budget:
    """Tells which runs may start so that all end in time; the cheapest cells come first.

    A cell is as fast as its last run that ended, at first as a short measurement says.
    """

    def __init__(
        self,
        hours: float,
        cell_of: Callable[[SweepJob], str],
        measure: Callable[[SweepJob], float | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to count the time; `measure` returns the seconds that a step of a job takes."""
        self._seconds, self._cell_of, self._now = hours * 3600, cell_of, now
        self._measure = measure or probed
        self._began = now()
        self._step_s: dict[str, float | None] = {}
        self._left_at_start: dict[str, int] = {}
        self.too_long: list[SweepJob] = []

    def learn(self, finished: Sequence[SweepJob], waiting: Sequence[SweepJob]) -> int:
        """Find out how long a step takes in each cell; return how many were measured."""
        for job in finished:
            result = job.run_dir.read_result()
            seconds, steps = finite(result.get("training_time_s")), result.get("num_timesteps")
            if seconds and isinstance(steps, int) and steps > 0:
                self._step_s[self._cell_of(job)] = seconds / steps
        unknown = [job for job in waiting if self._cell_of(job) not in self._step_s]
        first = {self._cell_of(job): job for job in reversed(unknown)}
        # The time of the measurements is no time of the budget.
        began = self._now()
        self._step_s |= {cell: self._measure(job) for cell, job in first.items()}
        self._began += self._now() - began
        return len(first)

    def order(self, jobs: Sequence[SweepJob]) -> list[SweepJob]:
        """Return jobs with the cheapest cells first, the seeds of a cell together."""
        place = {cell: at for at, cell in enumerate(dict.fromkeys(map(self._cell_of, jobs)))}

        def cost(job: SweepJob) -> tuple[float, int]:
            cell = self._cell_of(job)
            step_s = self._step_s[cell]
            whole = math.inf if step_s is None else step_s * job.config.n_timesteps
            return whole, place[cell]

        return sorted(jobs, key=cost)

    def seconds(self, job: SweepJob) -> float:
        """Return how long the rest of a run will take; infinite if that is not known [s]."""
        step_s = self._step_s[self._cell_of(job)]
        return math.inf if step_s is None else step_s * _left(job)

    def fitting(self, jobs: Sequence[SweepJob], slots: int) -> list[SweepJob]:
        """Return the jobs that end in time if so many run at once, in the order given."""
        free, found = [0.0] * slots, []
        for job in jobs:
            end = free[0] + self.seconds(job)
            if end <= self._seconds:
                heapq.heapreplace(free, end)
                found.append(job)
        return found

    def may_start(self, job: SweepJob) -> bool:
        """Return whether a run is expected to end within the budget if it starts now."""
        if self._now() - self._began + self.seconds(job) > self._seconds:
            self.too_long.append(job)
            return False
        self._left_at_start[job.key] = _left(job)
        return True

    def ended(self, job: SweepJob, ran_s: float) -> None:
        """Learn from a run that has finished."""
        steps = self._left_at_start.get(job.key, 0)
        if steps > 0 and ran_s > 0:
            self._step_s[self._cell_of(job)] = ran_s / steps

    def text(self, jobs: Sequence[SweepJob], slots: int) -> str:
        """Return the plan for jobs in order, in a line."""
        count = len(self.fitting(jobs, slots))
        costs = {self._cell_of(job): self.seconds(job) for job in jobs}
        shown = ", ".join(
            f"{cell} {'could not be measured' if math.isinf(seconds) else duration(seconds)}"
            for cell, seconds in costs.items()
        )
        return (
            f"budget {duration(self._seconds)}, {slots} at once: {count} of "
            f"{counted(len(jobs), 'run')} expected to end in time; the cheapest cells first, "
            f"a run each: {shown}"
        )


def _left(job: SweepJob) -> int:
    taken = job.run_dir.read_status().get("num_timesteps")
    return max(job.config.n_timesteps - (taken if isinstance(taken, int) else 0), 0)
