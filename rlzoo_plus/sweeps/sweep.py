"""Sweeps from Python: run the jobs that overrides stand for, and read their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, overload

from rich.console import Console

from rlzoo_plus.config.hydra_app import compose_jobs
from rlzoo_plus.config.overrides import as_arguments
from rlzoo_plus.config.python_calls import call_arguments
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.printing import plain_console
from rlzoo_plus.runs.run import Run, frame
from rlzoo_plus.sweeps.controller import Entry
from rlzoo_plus.sweeps.ledger import Ledger, open_sweep
from rlzoo_plus.sweeps.multirun import Multirun, start_early
from rlzoo_plus.sweeps.states import JobState, JobView, look_at
from rlzoo_plus.sweeps.summary import as_table, job_data, summarise, write_summary
from rlzoo_plus.sweeps.sweep_job import SweepJob
from rlzoo_plus.sweeps.sweep_view import SweepView, headline


def sweep(
    overrides: Sequence[str] = (),
    *,
    config_dir: str | Path | None = None,
    quiet: bool = False,
    on_end: Callable[[Run], None] | None = None,
    **values: Any,
) -> Sweep:
    """Run the jobs that overrides stand for, as `rlzoo-plus train -m` does.

    `rz.sweep(["algo=ppo,sac", "env=cartpole_bullet"], seed=range(2))` runs four jobs, each in a
    process of its own and in a directory named by its content, below outputs/sweeps/default or
    `sweep=NAME`. The same call again finishes only what is missing. A job that fails ends no other.

    Jobs do not run the calling script again, which needs no `if __name__ == "__main__"`. Register
    your own environments and algorithms in a module that the configuration names.

    Args:
        overrides: As on the command line.
        config_dir: A folder like conf/ with files of your own, which come first.
        quiet: Print nothing.
        on_end: Called with each run that is finished, also if it was before.
        **values: More overrides; a tuple or a range stands for several values, a list for one.

    Raises:
        ConfigError: It names all mistakes, in any job; none has begun.
        KeyboardInterrupt: By Ctrl-C; the jobs have saved checkpoints to resume from.
    """
    words = as_arguments(overrides, config_dir, {})
    for key, value in values.items():
        if not isinstance(value, (tuple, range)):
            words += call_arguments((), None, {key: value}, here=False)
        elif value:
            each = [call_arguments((), None, {key: one}, here=False) for one in value]
            # Of an environment, the id; its name follows from that.
            pairs = [next(w for w in words if w != "env=gym").partition("=") for words in each]
            words.append(f"{pairs[0][0]}={','.join(text for _, _, text in pairs)}")
        else:
            raise ConfigError(f"{key}: several values are asked for, and none is given.")
    start_early(words)
    jobs = Multirun(words, _View(plain_console(quiet=quiet), on_end), takes_signals=False)
    jobs.execute(compose_jobs)
    found = Sweep(Ledger(jobs.jobs[0].sweep), jobs.jobs)
    views = look_at(found.ledger.read())
    write_summary(found.path, views, summarise(views))
    return found


class Sweep(Sequence[Run]):
    """The runs of a sweep in the order of its jobs; `sweep` runs one, `Sweep.open` reads one."""

    def __init__(self, ledger: Ledger, jobs: list[SweepJob], *, trust: bool = True) -> None:
        self.ledger, self._jobs, self._trust = ledger, jobs, trust

    @classmethod
    def open(cls, name: str | Path, trust: bool = False) -> Sweep:
        """Open a sweep.

        Args:
            name: Its name below outputs/sweeps, or its directory.
            trust: Import what this project does not ship where a run needs it.

        Raises:
            ConfigError: There is none.
        """
        ledger = open_sweep(str(name))
        return cls(ledger, list(ledger.read().jobs.values()), trust=trust)

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.ledger.sweep

    def __len__(self) -> int:
        return len(self._jobs)

    @overload
    def __getitem__(self, index: int) -> Run: ...
    @overload
    def __getitem__(self, index: slice) -> list[Run]: ...
    def __getitem__(self, index: int | slice) -> Run | list[Run]:
        jobs = self._jobs[index]
        if isinstance(jobs, list):
            return [Run.open(job.path, trust=self._trust) for job in jobs]
        return Run.open(jobs.path, trust=self._trust)

    def __repr__(self) -> str:
        return f"<Sweep {self.path}: {headline(self.views(), 1, None)}>"

    def views(self) -> list[JobView]:
        """Return the state of each job."""
        return look_at(self.ledger.read(), self._jobs)

    def jobs(self) -> Any:
        """Return a row for each job: its directory, state, reason of failure, steps and returns.

        Returns:
            A pandas data frame where pandas is installed, else a list of dictionaries.
        """
        return frame([job_data(view) for view in self.views()])

    def summary(self) -> Any:
        """Return a row for each algorithm, environment and setting, over its seeds.

        Returns:
            A pandas data frame where pandas is installed, else a list of dictionaries; the columns
            of summary.csv.
        """
        return frame(as_table(summarise(self.views())))

    @property
    def failed(self) -> dict[str, str]:
        """The reason for each job that failed, by its path below the sweep."""
        return {v.job.key: v.reason for v in self.views() if v.state is JobState.FAILED}


class _View(SweepView):
    """Prints a line for each job that ends, and calls back."""

    def __init__(self, console: Console, on_end: Callable[[Run], None] | None) -> None:
        super().__init__(lambda: console, may_draw=False)
        self._on_end = on_end

    def ended(self, entry: Entry) -> None:
        """Say how a job ended."""
        super().ended(entry)
        if self._on_end is not None and entry.state is JobState.DONE:
            self._on_end(Run.open(entry.job.path, trust=True))
