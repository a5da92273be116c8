"""What a store holds, a line for each sweep or other folder of runs: its leases and its jobs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.store import submissions
from rlzoo_plus.store.cache import cache_of, hash_of, read_cached
from rlzoo_plus.store.contract import ArtifactStore, is_name
from rlzoo_plus.store.live import LiveRecord, LiveRecords
from rlzoo_plus.sweeps.states import JobState
from rlzoo_plus.workers.store_sweep import mean_return, state_of

_LONGEST_NAME = 60
_JOBS = "jobs.json"


@dataclass
class Folder:
    """A sweep, or another folder of runs."""

    name: str  # its name, the first part of the names of its runs
    is_sweep: bool  # whether workers can train it: jobs were submitted to it
    # Number of runs in each state.
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(map(str, JobState), 0))
    cancelled: int = 0  # number of those that wait until they are opened again
    # Time since the last sign of life of any worker [s], None if there was none.
    newest_s: float | None = None
    # Highest mean return of an evaluation: the best of a finished run, else its last.
    best: float | None = None
    best_run: str | None = None  # the name of that run

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
    """Return the folders of a store by name; only what changed is read again."""
    tags: dict[str, dict[str, str]] = {}
    for entry in store.list(f"{submissions.FOLDER}/"):
        # Each is `submissions/SWEEP/000001.jsonl`.
        parts = entry.name.split("/")
        if len(parts) == 3:
            tags.setdefault(parts[1], {})[parts[2]] = entry.tag
    folders = {name: Folder(name, is_sweep=True) for name in tags}
    jobs = {name: _jobs(store, name, tags[name]) for name in tags}
    for run, live in LiveRecords(store).read().items():
        name, _, key = run.partition("/")
        # A job that was taken out of its sweep has a lease still.
        if jobs.get(name, {}).pop(key, True):
            folders.setdefault(name, Folder(name, is_sweep=False)).add(live)
    for name, unbegun in jobs.items():
        folders[name].counts[JobState.WAITING] += sum(unbegun.values())
    return [folders[name] for name in sorted(folders)]


def _jobs(store: ArtifactStore, sweep: str, tags: dict[str, str]) -> dict[str, bool]:
    """Return whether each job that was ever submitted to a sweep is in it still, by its key."""
    folder = cache_of(store.url) / submissions.FOLDER / hash_of(sweep)
    file = folder / _JOBS
    known = read_cached(file)
    jobs = known.get("jobs")
    if known.get("tags") == tags and isinstance(jobs, dict):
        return {str(key): bool(is_in) for key, is_in in jobs.items()}
    found = submissions.Submissions(store, sweep, folder).read()
    seen = {record["job"] for submission in found for record in submission.records}
    kept = submissions.newest_records(found)
    jobs = {key: key in kept for key in seen if is_name(f"{sweep}/{key}")}
    write_atomic(file, json.dumps({"tags": tags, "jobs": jobs}))
    return jobs


def shown_name(folder: Folder) -> str:
    """Return the name of a folder for a table."""
    return printable(folder.name, _LONGEST_NAME)
