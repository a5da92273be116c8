"""Trains a population: a free worker takes the next part of whichever member is due."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress

from rlzoo_plus.artifacts.run_dir import FINISHED, INTERRUPTED, RunDir
from rlzoo_plus.errors import EXIT_BUSY, EXIT_ENDED, EXIT_FAILED, ConfigError, RunError
from rlzoo_plus.populations.member_job import JOB
from rlzoo_plus.populations.members import Members
from rlzoo_plus.populations.population import DIVERGED, Result, Task
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Launcher, Limits
from rlzoo_plus.sweeps.launchers.scheduler import Scheduler, stop_code
from rlzoo_plus.sweeps.presence import Presence, living_controllers
from rlzoo_plus.sweeps.states import explain_end, log_file

_NOT_A_NUMBER = re.compile(r"\b(nan|inf)\b", re.IGNORECASE)
_BUSY_S = 1.0


class Breeder(Scheduler[Task]):
    """Trains the members, each part in a process of its own.

    Attributes:
        population: Who trains what.
    """

    def __init__(
        self,
        members: Members,
        launcher: Launcher,
        told: Callable[[Task | Result, str], None] = lambda what, why: None,
    ) -> None:
        """Take what was decided before; `told` is called with each task that begins or has ended.

        Raises:
            ConfigError: The log of decisions is damaged.
        """
        super().__init__(launcher)
        self.members, self.population = members, members.population()
        self._told = told
        self._kills: dict[int, int] = {}
        self._due: dict[int, float] = {}
        self._next: Task | None = None

    def run(self) -> int:
        """Train; return 0, 1 if no member has reached the end, 75 or 130 if it was stopped.

        Raises:
            ConfigError: Another command trains the population, or a member cannot be trained.
            RunError: A member failed, or was killed too often.
        """
        folder = self.members.plan.folder
        if living_controllers(folder):
            raise ConfigError(
                f"{folder}: another command trains this population. Wait for it, or stop it."
            )
        with Presence(folder) as self._presence:
            self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        return 0 if self.population.best() else EXIT_FAILED

    def is_asked_to_stop(self) -> bool:
        """Return whether `study cancel` was called."""
        return self._presence.is_asked_to_stop()

    def next_job(self) -> Task | None:
        """Return the next part of a member that is due; those that are behind come first."""
        if (due := self._next) is not None:
            self._next = None
            return due
        busy = {each.job.member for each in self.active}
        free = [m for m in range(self.members.settings.population) if m not in busy]
        tasks = self.population.tasks
        for member in sorted(free, key=lambda m: tasks[m].segment if m in tasks else 0):
            if time.monotonic() < self._due.get(member, 0.0):
                continue
            known = tasks.get(member)
            task = self.population.next_task(member)
            if task is not None:
                self._told(task, "" if task is known else "begins")
                return task
        return None

    def has_more(self) -> bool:
        """Return whether a part is due, or a member waits for an earlier attempt to end."""
        self._next = self.next_job()
        return self._next is not None or any(time.monotonic() < due for due in self._due.values())

    def spec_of(self, job: Task) -> JobSpec:
        """Return a part of a member's training as a launcher takes it."""
        parent = None
        if job.parent is not None:
            parent = next(t for t in reversed(self.population.history) if t.run == job.parent)
        data = self.members.data(job, parent)
        folder = self.members.path(job.run)
        # A branch that is to begin needs an empty place.
        log = folder.parent / f"{folder.name}.txt"
        log.parent.mkdir(parents=True, exist_ok=True)
        limits = Limits.of(self.members.plan.base.infra)
        return JobSpec(f"member {job.member}, part {job.segment}", JOB, data, log, limits)

    def on_refused(self, job: Task, error: Exception) -> None:
        """Raise why a part cannot be started."""
        raise error

    def on_end(self, job: Task, end: JobEnd, ran_s: float) -> None:
        """Keep the result of a part that has ended; others are tried again."""
        run_dir = RunDir(self.members.path(job.run))
        status = run_dir.read_status()
        step = status.get("num_timesteps")
        is_over = end.code in (0, EXIT_ENDED) and status.get("state") in (FINISHED, INTERRUPTED)
        if end.limit is None and is_over and isinstance(step, int):
            score = self.members.score(job.run, step)
            self._end(Result(job.member, job.segment, job.run, step, score))
            return
        if self.stop_signal is not None:
            return
        reason = explain_end(end, run_dir)
        if end.code == EXIT_BUSY:
            self._due[job.member] = time.monotonic() + _BUSY_S
        elif end.code == EXIT_FAILED and _NOT_A_NUMBER.search(reason):
            self._end(Result(job.member, job.segment, job.run, 0, DIVERGED))
        else:
            self._kills[job.member] = self._kills.get(job.member, 0) + 1
            if end.code >= 0 or self._kills[job.member] > self.members.plan.hpo.retries:
                where = log_file(run_dir)
                with suppress(StopIteration):
                    where = next(p for p in (where, run_dir.path.with_suffix(".txt")) if p.exists())
                raise RunError(f"member {job.member} failed: {reason}. See {where}.")

    def _end(self, result: Result) -> None:
        self._kills.pop(result.member, None)
        self.population.record(result)
        self._told(result, "ended")
