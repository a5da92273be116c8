"""A sweep in a store, read from its submissions and leases, and steered; all that a store holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.progress import Progress
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store import lease, submissions
from rlzoo_plus.store.cache import cache_of, hash_of, read_cached, store_of
from rlzoo_plus.store.contract import ArtifactStore, StoreError, in_parallel, is_name, open_store
from rlzoo_plus.store.launches import Launches
from rlzoo_plus.store.live import LiveRecord, LiveRecords
from rlzoo_plus.store.mirror import RUNS
from rlzoo_plus.sweeps.ledger import JobLoader
from rlzoo_plus.sweeps.states import TAIL_BYTES, JobState, JobView, last_lines
from rlzoo_plus.sweeps.summary import Row, as_data
from rlzoo_plus.sweeps.sweep_job import SweepJob, sweep_dir
from rlzoo_plus.version import __version__
from rlzoo_plus.workers.costs import RunCosts, costs_of_run, costs_of_sweep

# No return, time or count of steps is larger; what is would break tables.
_LARGEST = 1e15
_SLOWEST = 1e-6
_STATES = {lease.FINISHED: JobState.DONE, lease.FAILED: JobState.FAILED}


@dataclass(frozen=True)
class StoreView(JobView):
    """A job of a sweep in a store, as a table shows it."""

    worker: str = ""  # who trains it, or did so last; empty if nobody did
    # Time since the worker's last sign of life [s], None if there is none.
    age_s: float | None = None
    is_cancelled: bool = False  # whether it waits until the sweep is resumed
    tag: str | None = None  # of the run's lease if nobody holds it any more, else None
    costs: RunCosts = field(default_factory=RunCosts)  # what the attempts at it took


@dataclass(frozen=True)
class Changed:
    """What became of a change to many runs."""

    answers: list[Any]  # the answer for each run that could be changed
    error: StoreError | None  # why others could not be changed, None if all could


class StoreSweep:
    """The jobs of a sweep in a store; what was read is not read again.

    Its methods raise `StoreError` if a request failed.
    """

    def __init__(self, store: ArtifactStore, name: str) -> None:
        """Name a sweep; nothing is requested yet."""
        self.url, self.name = f"{store.url.rstrip('/')}/{name}", name
        self._store = store
        folder = cache_of(store.url)
        kept = folder / submissions.FOLDER / hash_of(name)
        self._submissions = submissions.Submissions(store, name, kept)
        self._live = LiveRecords(store, name)
        # Nothing is written there: what is here of a run is its lease's record.
        self._loader = JobLoader(
            folder / "sweeps" / name, self.url, lambda key: is_name(f"{name}/{key}")
        )
        self._jobs: dict[str, SweepJob] = {}
        self._n_submissions = 0

    @property
    def launches(self) -> Launches:
        """What commands asked a cloud for."""
        return Launches(self._store, self.name)

    @classmethod
    def at(cls, url: str) -> StoreSweep:
        """Return the sweep at `STORE/SWEEP`; nothing is requested yet."""
        store, name = submissions.split_sweep_url(url)
        return cls(open_store(store), name)

    def views(self) -> list[StoreView]:
        """Return the jobs with their states, in the order in which they were submitted."""
        with ThreadPoolExecutor(1) as pool:
            # Thousands of jobs are parsed in the time that the store takes to list their leases.
            # Here are the requests: Ctrl-C ends them.
            parsing = pool.submit(self._read_jobs)
            live = self._live.read()
            jobs = parsing.result()
        return [_view(job, live.get(f"{self.name}/{job.key}")) for job in jobs.values()]

    def _read_jobs(self) -> dict[str, SweepJob]:
        submitted = self._submissions.read()
        if not submitted:
            store = self._store.url
            raise ConfigError(
                f"{store} has no sweep {printable(self.name)!r}. `rlzoo-plus ls {store}` lists "
                "what is there."
            )
        if len(submitted) != self._n_submissions:
            self._jobs = self._loader.load(submissions.newest_records(submitted))
            self._n_submissions = len(submitted)
        return self._jobs

    def data(self, views: list[StoreView], rows: list[Row]) -> dict[str, Any]:
        """Return the state of the sweep as plain data."""
        data = as_data(self.url, list(views), rows)
        for job, view in zip(data["jobs"], views, strict=True):
            job |= {"cancelled": view.is_cancelled, "worker": view.worker, "beat_age_s": view.age_s}
            job["attempts"] = [vars(attempt) for attempt in view.costs.attempts]
            job["spent"] = vars(view.costs.spent)
        costs = costs_of_sweep([view.costs for view in views])
        return {**data, "workers": n_workers(views), "costs": vars(costs)}

    def log_tail(self, job: SweepJob, n_lines: int) -> list[str] | None:
        """Return the last lines of what a job printed, as far as it was sent, None if none was."""
        found = self._store.get_tail(f"{RUNS}/{self.name}/{job.key}/log.txt", TAIL_BYTES)
        return None if found is None else last_lines(found, n_lines)

    def cancel(self, views: Iterable[StoreView], reason: str) -> Changed:
        """Cancel runs; answers are `running` for one whose worker was asked to stop, or an end."""
        return self._change(
            lambda v: lease.ask(self._store, self._run(v), lease.STOP, reason, gone=v.tag), views
        )

    def reopen(self, views: Iterable[StoreView], states: Collection[str]) -> Changed:
        """Let workers take runs again that ended in one of these states; answers say which did."""
        return self._change(
            lambda v: lease.reopen(
                self._store, self._run(v), states, gone=v.tag if v.is_cancelled else None
            ),
            views,
        )

    def set_budgets(self, budgets: Mapping[str, float | None]) -> None:
        """Submit runs again with other budgets [$], None for no limit, and nothing else changed."""
        by_about: dict[str, list[dict[str, Any]]] = {}
        for key, record in self._submissions.records().items():
            if key in budgets:
                about = json.dumps(record["about"], sort_keys=True)
                kept = {name: value for name, value in record.items() if name != "about"}
                by_about.setdefault(about, []).append({**kept, "max_usd": budgets[key]})
        for about, records in by_about.items():
            self._submissions.add(records, json.loads(about))

    def remove(self, views: Iterable[StoreView]) -> None:
        """Take jobs out of the sweep; the objects of their runs stay."""
        events = [{"event": submissions.REMOVED, "job": view.job.key} for view in views]
        self._submissions.add(events, {"version": __version__, "code": None})

    def _run(self, view: StoreView) -> str:
        return f"{self.name}/{view.job.key}"

    def _change(self, change: Callable[[StoreView], Any], views: Iterable[StoreView]) -> Changed:
        def tried(view: StoreView) -> Any:
            try:
                return change(view)
            except StoreError as error:
                return error

        answers = in_parallel(tried, views)
        errors = [answer for answer in answers if isinstance(answer, StoreError)]
        good = [answer for answer in answers if not isinstance(answer, StoreError)]
        return Changed(good, errors[0] if errors else None)


def find_store_sweep(name: str) -> StoreSweep | None:
    """Return the sweep that a URL, a folder's path or a local name stands for, if it is in a store.

    Args:
        name: `s3://bucket/prefix/SWEEP`; a folder that is a store, and `/SWEEP`; or what a sweep is
            called here that was submitted to a store from this machine.
    """
    if "://" in name:
        return StoreSweep.at(name)
    path = Path(name).expanduser()
    if "/" in name and (path.parent / submissions.FOLDER / path.name).is_dir():
        return StoreSweep(open_store(path.parent), path.name)
    urls = (store_of(place) for place in (path, sweep_dir(name)))
    url = next((url for url in urls if url is not None), None)
    return None if url is None else StoreSweep.at(url)


def n_workers(views: Iterable[StoreView]) -> int:
    """Return how many workers train jobs now."""
    return len({view.worker for view in views if view.state is JobState.RUNNING})


def is_over(views: Iterable[StoreView]) -> bool:
    """Return whether no job runs, and none waits for a worker."""
    ended = (JobState.DONE, JobState.FAILED)
    return all(view.state in ended or view.is_cancelled for view in views)


def state_of(live: LiveRecord) -> tuple[JobState, bool]:
    """Return the state of a run, and whether it waits until it is opened again."""
    if live.state in _STATES:
        return _STATES[live.state], False
    if live.is_trained:
        return JobState.RUNNING, False
    # A worker that died before it could obey: the next one will not train the run, either.
    asked = live.state == lease.RUNNING and live.is_asked_to_end
    return JobState.WAITING, asked or live.state == lease.CANCELLED


def mean_return(evaluation: Any) -> float | None:
    """Return the mean return of an untrusted evaluation, None if it is none or out of range."""
    return _number(evaluation.get("mean_return")) if isinstance(evaluation, dict) else None


def _view(job: SweepJob, live: LiveRecord | None) -> StoreView:
    if live is None:
        return StoreView(job, JobState.WAITING)
    record = live.record
    state, is_cancelled = state_of(live)
    reason = printable(record.get("reason") or "")
    if state is JobState.DONE:
        reason = ""
    elif state is JobState.FAILED:
        reason = reason or "an error"
    elif state is JobState.RUNNING:
        reason = "asked to stop" if live.is_asked_to_end else ""
    elif is_cancelled:
        reason = "cancelled" + (f": {reason}" if reason else "")
    elif live.state == lease.RUNNING:
        reason = "its worker is gone; it can go on"
    elif not record:
        reason = "its record in the store is damaged"
    is_done = state is JobState.DONE
    # A job that nobody has begun has no steps.
    steps = _number(record.get("steps")) or (job.config.n_timesteps if is_done else 0)
    rate = _number(record.get("rate"))
    is_rate = rate is not None and rate > _SLOWEST
    mean = mean_return(record.get("evaluation"))
    return StoreView(
        job,
        state,
        reason,
        Progress(max(int(steps), 0), rate if is_rate and not is_done else None, mean),
        best=mean_return(record.get("best")) if is_done else None,
        final=mean_return(record.get("final")) if is_done else None,
        time_s=_number(record.get("training_time_s")) if is_done else None,
        worker=printable(record.get("worker") or "", 100),
        age_s=live.age_s,
        is_cancelled=is_cancelled,
        tag=None if live.is_trained else live.tag,
        costs=costs_of_run(live),
    )


def _number(value: Any) -> float | None:
    number = finite(value)
    return number if number is not None and abs(number) <= _LARGEST else None


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
