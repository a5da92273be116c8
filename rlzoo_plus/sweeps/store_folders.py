"""What a store holds, a line for each sweep or other folder of runs, from their leases alone."""

from __future__ import annotations

from dataclasses import dataclass, field

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.store import submissions
from rlzoo_plus.store.contract import ArtifactStore
from rlzoo_plus.store.live import LiveRecord, LiveRecords
from rlzoo_plus.sweeps.states import JobState
from rlzoo_plus.sweeps.store_sweep import mean_return, state_of

_LONGEST_NAME = 60


@dataclass
class Folder:
    """A sweep, or another folder of runs.

    Attributes:
        name: Its name, the first part of the names of its runs.
        is_sweep: Whether workers can train it: jobs were submitted to it.
        counts: Number of runs in each state; those of a sweep that nobody has begun are in none.
        cancelled: Number of those that wait until they are opened again.
        newest_s: Time since the last sign of life of any worker [s], None if there was none.
        best: Highest mean return of an evaluation: the best of a finished run, else its last.
        best_run: The name of that run.
    """

    name: str
    is_sweep: bool
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(map(str, JobState), 0))
    cancelled: int = 0
    newest_s: float | None = None
    best: float | None = None
    best_run: str | None = None

    def add(self, live: LiveRecord) -> None:
        """Count a run."""
        state, is_cancelled = state_of(live)
        self.counts[str(state)] += 1
        self.cancelled += is_cancelled
        self.newest_s = live.age_s if self.newest_s is None else min(self.newest_s, live.age_s)
        found = mean_return(live.record.get("best"))
        if found is None:
            found = mean_return(live.record.get("evaluation"))
        if found is not None and (self.best is None or found > self.best):
            self.best, self.best_run = found, live.run


def list_folders(store: ArtifactStore) -> list[Folder]:
    """Return the folders of a store by name; runs are read again only where they changed.

    Raises:
        StoreError: A request failed.
    """
    # Each is `submissions/SWEEP/000001.jsonl`.
    parts = (entry.name.split("/") for entry in store.list(f"{submissions.FOLDER}/"))
    folders = {each[1]: Folder(each[1], is_sweep=True) for each in parts if len(each) == 3}
    for run, live in LiveRecords(store).read().items():
        name = run.partition("/")[0]
        folders.setdefault(name, Folder(name, is_sweep=False)).add(live)
    return [folders[name] for name in sorted(folders)]


def shown_name(folder: Folder) -> str:
    """Return the name of a folder for a table."""
    return printable(folder.name, _LONGEST_NAME)
