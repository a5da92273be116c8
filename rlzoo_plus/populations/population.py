"""Who trains what next: the members of a population, their results, and a log of every decision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.records import append_records, iter_records
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.populations.mutation import Params
from rlzoo_plus.tuning.population_settings import PopulationSettings

LOG = "population.jsonl"
DIVERGED = -math.inf


@dataclass(frozen=True)
class Task:
    """A part of a member's training."""

    member: int
    segment: int
    """Counts from 1."""
    run: str
    """The run's directory, below that of the study."""
    params: Params
    """Parameters of the search space."""
    overrides: tuple[str, ...]
    """What they are on a command line."""
    parent: str | None = None
    """The run that a branch begins from."""
    parent_step: int = 0
    """Its step."""


@dataclass(frozen=True)
class Result:
    """How a part of a member's training ended."""

    member: int
    segment: int
    run: str
    step: int
    score: float
    """Mean return of its last evaluations; minus infinity if it diverged."""


class Population:
    """Members, and what is known of them; every decision is in the log before it is acted on.

    Attributes:
        tasks: The newest one of each member.
        results: All, by member and segment.
    """

    def __init__(
        self,
        folder: Path,
        settings: PopulationSettings,
        seed: int,
        n_steps: int,
        draw: Callable[[int, Params | None, Sequence[str], np.random.Generator], Any],
    ) -> None:
        """Read what was decided before.

        Args:
            folder: The study's directory.
            settings: Its settings.
            seed: Decides, with member and segment, what is drawn.
            n_steps: Of a whole training: nobody goes on from where another has ended.
            draw: Returns parameters and overrides of a member, from its number, the parameters and
                overrides of the member that it goes on from, if any, and a generator.

        Raises:
            ConfigError: The log is damaged.
        """
        self.folder, self.settings, self.seed, self._draw = folder, settings, seed, draw
        self._n_steps = n_steps
        self.tasks: dict[int, Task] = {}
        self.results: dict[tuple[int, int], Result] = {}
        self.history: list[Task] = []
        for record in iter_records(folder / LOG):
            self._take(record)

    def next_task(self, member: int) -> Task | None:
        """Return what a member trains next, None if that is not known yet or it has finished."""
        task = self.tasks.get(member)
        if task is None:
            return self._begin(member)
        result = self.results.get((member, task.segment))
        if result is None:
            return task
        if task.segment == self.settings.segments:
            return None
        return self._go_on(task, result)

    def record(self, result: Result) -> None:
        """Keep how a part of a training ended."""
        self._write({"result": asdict(result)})
        self.results[result.member, result.segment] = result

    def best(self) -> Result | None:
        """Return the best result at the end, None if there is none."""
        last = [r for (_, segment), r in self.results.items() if segment == self.settings.segments]
        whole = [result for result in last if math.isfinite(result.score)]
        return max(whole, key=lambda result: (result.score, -result.member), default=None)

    def lineage(self, run: str) -> list[Task]:
        """Return how a run came about: the first task of it and of each run before it.

        Raises:
            ConfigError: The log does not say.
        """
        first: dict[str, Task] = {}
        for task in self.history:
            first.setdefault(task.run, task)
        found: list[Task] = []
        name: str | None = run
        while name is not None:
            task_of_run = first.get(name)
            if task_of_run is None or task_of_run in found:
                raise ConfigError(f"{self.folder / LOG} does not say how {printable(name)} began.")
            found.insert(0, task_of_run)
            name = task_of_run.parent
        return found

    def _begin(self, member: int) -> Task:
        params, overrides = self._draw(member, None, (), self._rng(member, 0))
        return self._decide(Task(member, 1, f"members/{member:03}/0", params, tuple(overrides)))

    def _go_on(self, task: Task, result: Result) -> Task | None:
        """Return a member's next task: more of its run, or a branch of a better one."""
        rng = self._rng(task.member, task.segment)
        donor = self._donor(result, rng)
        if donor is None:
            if result.score == DIVERGED:
                # It waits for one that it can go on from.
                return None
            following = {**asdict(task), "segment": task.segment + 1}
            return self._decide(_task({**following, "parent": None, "parent_step": 0}))
        source = next(t for t in reversed(self.history) if t.run == donor.run)
        params, overrides = self._draw(task.member, source.params, source.overrides, rng)
        count = int(task.run.rpartition("/")[2]) + 1
        return self._decide(
            Task(
                task.member,
                task.segment + 1,
                f"members/{task.member:03}/{count}",
                params,
                tuple(overrides),
                donor.run,
                donor.step,
            )
        )

    def _donor(self, result: Result, rng: np.random.Generator) -> Result | None:
        """Return the result that a member goes on from in place of its own, None for its own."""
        known = [r for (_, segment), r in self.results.items() if segment == result.segment]
        ranked = sorted(known, key=lambda one: (-one.score, one.member))
        better = [o for o in ranked if o.score > result.score and o.step < self._n_steps]
        # Those that are ahead of the others go on with what they have.
        n_known = len(ranked) if 2 * len(ranked) >= self.settings.population else 0
        n_moved = max(1, round(self.settings.share * n_known))
        is_bad = n_known > 0 and ranked.index(result) >= n_known - n_moved
        if not better or not (is_bad or result.score == DIVERGED):
            return None
        best = better[:n_moved]
        return best[int(rng.integers(len(best)))]

    def _rng(self, member: int, segment: int) -> np.random.Generator:
        return np.random.default_rng([self.seed % 2**32, member, segment])

    def _decide(self, task: Task) -> Task:
        self._write({"task": {**asdict(task), "overrides": list(task.overrides)}})
        self._keep(task)
        return task

    def _write(self, record: Mapping[str, Any]) -> None:
        append_records(self.folder / LOG, [record], keep_infinities=True)

    def _keep(self, task: Task) -> None:
        self.tasks[task.member] = task
        self.history.append(task)

    def _take(self, record: Mapping[str, Any]) -> None:
        try:
            if "task" in record:
                self._keep(_task(record["task"]))
            elif "result" in record:
                result = Result(**record["result"])
                self.results[result.member, result.segment] = result
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.folder / LOG} is damaged: {printable(error)}.") from error


def _task(values: Any) -> Task:
    """Read a task.

    Raises:
        TypeError, ValueError: It is none.
    """
    task = Task(**{**values, "overrides": tuple(values["overrides"])})
    for run in (task.run, task.parent or task.run):
        parts = run.split("/")
        if len(parts) != 3 or parts[0] != "members" or not "".join(parts[1:]).isdecimal():
            raise ValueError(f"{run} is no run of a member")
    if not all(isinstance(text, str) for text in task.overrides):
        raise ValueError("overrides must be texts")
    return task
