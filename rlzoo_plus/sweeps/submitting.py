"""A sweep that workers train: its runs are submitted at once, watched, and brought home."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.analysis.find_run import foreign_code_of
from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import OutsideError
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.config.own_code import own_modules
from rlzoo_plus.errors import EXIT_FAILED
from rlzoo_plus.processes import stop_signals_go_to
from rlzoo_plus.store.cache import remember_store
from rlzoo_plus.store.contract import in_parallel
from rlzoo_plus.store.download import bring_run
from rlzoo_plus.store.lease import CANCELLED, ENDED, FINISHED, RUNNING
from rlzoo_plus.store.live import LiveRecord
from rlzoo_plus.sweeps.controller import Entry
from rlzoo_plus.sweeps.launchers.scheduler import POLL_S, stop_code
from rlzoo_plus.sweeps.launchers.submitter import run_record
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher, progress_of
from rlzoo_plus.sweeps.ledger import DONE, FAILED, Ledger
from rlzoo_plus.sweeps.states import JobState, JobView
from rlzoo_plus.sweeps.sweep_job import SWEEPS, SweepJob

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.sweeps.sweep_view import SweepView

# How often is looked for jobs that another command took out of the sweep [s].
_REMOVED_S = 60.0
_GONE = "its worker is gone; another one can take it"


def submit_jobs(
    jobs: list[SweepJob],
    launcher: WorkersLauncher,
    view: SweepView,
    *,
    waits: bool,
    takes_signals: bool = True,
) -> int:
    """Submit the jobs that are not done, and wait for their end if asked to.

    The jobs are in their sweep's ledger. A signal ends the waiting only; for `takes_signals` see
    `Scheduler`.

    Returns:
        0; 1 if one failed; 75 or 130 if the waiting was stopped.

    Raises:
        StoreError: A request of the submission failed; the same command may be given again.
        ConfigError: The code cannot be sent.
    """
    entries = [Entry(job) for job in jobs]
    todo = {entry.job.key: entry for entry in entries if not entry.job.is_finished()}
    sweep, say = jobs[0].sweep, view.console.print
    if prepare([entry.job for entry in todo.values()], launcher, view):
        return 0
    records = {key: _record(entry.job) | launcher.more_of(key) for key, entry in todo.items()}
    n_new, n_opened = launcher.submitter.submit(list(records.values()))
    remember_store(sweep, launcher.place)
    there = len(todo) - n_new
    before = f", {there:,} were there already" if there else ""
    again = f"; {n_opened:,} of them may be taken again" if n_opened else ""
    say(f"submitted {counted(n_new, 'run')} to {launcher.place}{before}{again}", markup=False)
    if launcher.starts_machines:
        for line in launcher.start_machines([*todo]) if todo else ():
            say(line, markup=False)
    elif todo:
        configs = [entry.job.config for entry in todo.values()]
        say(f"a worker, on any machine: {worker_command(launcher, configs)}", markup=False)
        left = _left_here(configs, launcher.settings.code)
        if left:
            text = f"workers need {', '.join(left)} from here: infra.code=[{','.join(left)}]"
            say(text, markup=False)
    if not waits:
        _say_how(launcher, sweep, view)
        return 0
    code = _Watch(entries, records, launcher, view).run(takes_signals=takes_signals)
    if code > 1:
        _say_how(launcher, sweep, view)
    return code


def prepare(jobs: list[SweepJob], launcher: WorkersLauncher, view: SweepView) -> bool:
    """Check what machines need before anything is submitted; return whether to end with that."""
    configs = {job.key: job.config for job in jobs if not job.is_finished()}
    is_dry = bool(getattr(launcher.settings, "dry_run", False))
    if is_dry:
        text = "measuring how fast these runs train here, for half a minute ..."
        view.console.print(text if configs else "every run is finished: no machine would start")
    for line in launcher.prepare(configs) if configs else ():
        view.console.print(line, markup=False)
    return is_dry


def worker_command(launcher: WorkersLauncher, configs: Iterable[RunConfig]) -> str:
    """Return the command that starts a worker for runs with these configurations."""
    is_foreign = bool(launcher.settings.code) or any(map(needs_trust, configs))
    return command_line(
        ["rlzoo-plus", "worker", launcher.place, *(["--trust"] if is_foreign else [])]
    )


def needs_trust(config: RunConfig) -> bool:
    """Return whether a run needs `--trust` of its worker, which brings no store of its own."""
    alone = config.model_copy(update={"store": None})
    return bool(config.init_from or foreign_code_of(alone))


def _left_here(configs: Iterable[RunConfig], sent: Iterable[str]) -> list[str]:
    """Return the modules in the working directory that runs import and that are not sent."""
    modules = dict.fromkeys(name for config in configs for name in own_modules(config))
    there = {Path(os.path.relpath(path)).parts[0] if path != "." else "." for path in sent}
    files = {name: name if Path(name).is_dir() else f"{name}.py" for name in modules}
    return [f for f in files.values() if Path(f).exists() and not there & {f, "."}]


class _Watch:
    """Waits for the runs of a sweep; errors of the store are told and outlasted."""

    def __init__(
        self,
        entries: list[Entry],
        records: dict[str, dict[str, Any]],
        launcher: WorkersLauncher,
        view: SweepView,
    ) -> None:
        self._entries, self._records = entries, records
        self._open = {e.job.key: e for e in entries if e.job.key in records}
        self._launcher, self._submitter, self._view = launcher, launcher.submitter, view
        self._ledger = Ledger(entries[0].job.sweep)
        self._running: list[JobView] = []
        self._looked_for_removed = time.monotonic()
        self._signal: int | None = None

    def run(self, *, takes_signals: bool) -> int:
        """Wait; return 0, 1 if a job failed, 75 or 130 after a signal."""
        with self._signals(takes_signals), self._view:
            for entry in self._entries:
                if entry.job.key not in self._records:
                    self._end(entry, JobState.DONE)
            look_at = 0.0
            while self._open and self._signal is None:
                if time.monotonic() >= look_at:
                    self._launcher.safely(self._look)
                    look_at = time.monotonic() + self._launcher.settings.look_s
                counts = Counter(entry.state for entry in self._entries)
                self._view.show(self._running, counts)
                time.sleep(POLL_S if self._open else 0.0)
        if self._signal is not None:
            return stop_code(self._signal)
        failed = any(entry.state is JobState.FAILED for entry in self._entries)
        return EXIT_FAILED if failed else 0

    def _end(self, entry: Entry, state: JobState, reason: str = "", ran_s: float = 0.0) -> None:
        """Record and show how a job ended."""
        entry.state, entry.reason, entry.ran_s = state, reason, ran_s
        if self._open.pop(entry.job.key, None) is not None:
            if state is JobState.FAILED:
                self._ledger.write(FAILED, entry.job, reason=reason)
            else:
                self._ledger.write(DONE, entry.job, seconds=round(ran_s, 3))
        self._view.ended(entry)

    @contextlib.contextmanager
    def _signals(self, takes_signals: bool) -> Iterator[None]:
        def stop(number: int, _frame: object) -> None:
            self._signal = self._signal or number

        try:
            with stop_signals_go_to(stop) if takes_signals else contextlib.nullcontext():
                yield
        except KeyboardInterrupt:
            _say_how(self._launcher, self._ledger.sweep, self._view)
            raise

    def _look(self) -> None:
        live = self._submitter.live()
        ended = {key: live[key] for key in self._open if key in live and live[key].state in ENDED}
        problems = in_parallel(self._bring, ended)
        for key, problem in zip(ended, problems, strict=True):
            self._judge(self._open[key], ended[key], problem)
        self._running = []
        for key, entry in self._open.items():
            each = live.get(key)
            entry.state = JobState.WAITING
            if each is not None and each.state == RUNNING:
                entry.state = JobState.RUNNING
                reason = "" if each.is_trained else _GONE
                progress = progress_of(each.record)
                self._running.append(JobView(entry.job, entry.state, reason, progress))
        self._drop_removed(live)

    def _bring(self, key: str) -> str | None:
        job = self._open[key].job
        try:
            job.check_place()
            run = self._submitter.run(key)
            bring_run(self._submitter.store, run, job.path, job.config, light=True)
            return None
        except (DamagedFolderError, OutsideError) as error:
            return one_line(error)

    def _judge(self, entry: Entry, live: LiveRecord, problem: str | None) -> None:
        record = live.record
        # A job that ran a moment is told from one that was done before.
        ran_s = finite(record.get("training_time_s")) or 1e-3
        reason = record.get("limit") or record.get("reason")
        told = printable(reason) if isinstance(reason, str) and reason else "no reason is given"
        if problem is not None:
            self._end(entry, JobState.FAILED, problem, ran_s)
        elif live.state == FINISHED:
            self._end(entry, JobState.DONE, "", ran_s)
        else:
            prefix = "cancelled: " if live.state == CANCELLED else ""
            self._end(entry, JobState.FAILED, prefix + told, ran_s)

    def _drop_removed(self, live: dict[str, LiveRecord]) -> None:
        now = time.monotonic()
        if now - self._looked_for_removed < _REMOVED_S or set(self._open) <= set(live):
            return
        self._looked_for_removed = now
        for key in set(self._open) - set(live) - self._submitter.keys():
            self._end(self._open[key], JobState.FAILED, "another command removed it")


def _record(job: SweepJob) -> dict[str, Any]:
    return run_record(job.key, job.config.model_dump(), job.command)


def _say_how(launcher: WorkersLauncher, sweep: Path, view: SweepView) -> None:
    say = view.console.print
    name = sweep.name if sweep.parent == SWEEPS else sweep
    say(f"the runs of {launcher.place} go on wherever workers train them", markup=False)
    say(f"next: rlzoo-plus sweep status|cancel {name}", markup=False)
