"""Jobs for workers that take runs from a store, wherever they are; nothing is started here."""

from __future__ import annotations

import functools
import logging
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field

from rlzoo_plus.analysis.progress import Progress
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.atomic import DamagedFolderError
from rlzoo_plus.artifacts.inside import OutsideError
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.resolve import validate_config
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.section import PositiveFloat, Section
from rlzoo_plus.errors import EXIT_ENDED, EXIT_FAILED, EXIT_SIGTERM, ConfigError
from rlzoo_plus.store.contract import StoreError, is_name, open_store
from rlzoo_plus.store.download import append_log, bring_run
from rlzoo_plus.store.lease import CANCELLED, ENDED, FINISHED, KILL, RUNNING, STOP, ask
from rlzoo_plus.store.live import LiveRecord
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, LauncherOptions
from rlzoo_plus.sweeps.launchers.node import sleep_until
from rlzoo_plus.sweeps.launchers.submitter import Submitter, run_record

# Trials of a study at once, if infra.workers is not set.
DEFAULT_SLOTS = 16
log = logging.getLogger(__name__)


class WorkersSettings(Section):
    """The keys of `infra=workers`; conf/infra/workers.yaml explains them."""

    wait: bool = True
    code: list[str] = Field(default_factory=list)
    look_s: PositiveFloat = 10.0


class WorkersLauncher:
    """Submits jobs to a store, and reads there how they end; a sweep's runs all at once.

    A launcher that starts the machines of its workers is a subclass.
    """

    shows_output = False
    Settings = WorkersSettings
    # Whether it starts machines; else the user starts workers.
    starts_machines = False

    def __init__(self, options: LauncherOptions) -> None:
        self.settings: WorkersSettings = options.settings
        self.slots = options.workers or DEFAULT_SLOTS
        if not options.store:
            raise ConfigError(
                "infra=workers needs a store, where workers find the runs. Add "
                "store=s3://bucket/prefix, or store=FOLDER on a disk that the machines share."
            )
        self.url, self.sweep = options.store, options.sweep or "default"
        if not is_name(self.sweep) or "/" in self.sweep:
            raise ConfigError(
                f"{printable(self.sweep)!r} cannot be the name of a sweep in a store. Use letters, "
                "digits, dots and hyphens: sweep=NAME, or hpo.study=NAME."
            )
        missing = [path for path in self.settings.code if not Path(path).expanduser().exists()]
        if missing:
            raise ConfigError(
                f"infra.code={missing[0]}: there is no such folder or file. Paths are relative to "
                "the present directory."
            )
        self._buffer: list[WorkersHandle] = []
        self._live: dict[str, LiveRecord] = {}
        self._looked = float("-inf")
        self._problem = ""

    @classmethod
    def from_options(cls, options: LauncherOptions) -> WorkersLauncher:
        """Make a launcher; nothing is requested yet."""
        return cls(options)

    @functools.cached_property
    def submitter(self) -> Submitter:
        """What submits to the store of the jobs."""
        return Submitter(open_store(self.url), self.sweep, self.settings.code)

    def prepare(self, configs: Mapping[str, RunConfig]) -> list[str]:
        """Check all that machines will need, before anything is submitted.

        `configs` has the configurations of the runs that are not done, by their keys.

        Returns:
            The lines of a plan, if nothing is to be done but to print it; else none.
        """
        return []

    def prepare_study(self, config: RunConfig) -> None:
        """Check all that machines will need for the trials of a study."""
        if not self.settings.wait:
            raise ConfigError(
                "infra.wait=false: a study needs its command, which chooses the values of the "
                "trials. Leave it out."
            )

    def more_of(self, key: str) -> dict[str, Any]:
        """Return what the record of a run has besides its configuration, such as its budget."""
        return {}

    def start_machines(self, keys: Sequence[str]) -> list[str]:
        """Start machines for runs that were submitted; return lines that say so.

        Runs that machines are at work for already are left out.

        Raises:
            ConfigError: The machines cannot be started; the same call may be made again.
        """
        return []

    @property
    def place(self) -> str:
        """What a worker is given: `STORE/SWEEP`."""
        where = self.url if "://" in self.url else os.path.abspath(self.url)
        return f"{where.rstrip('/')}/{self.sweep}"

    def submit(self, spec: JobSpec) -> WorkersHandle:
        """Submit a job, at a later look if the store is away."""
        handle = WorkersHandle(self, spec)
        self._buffer.append(handle)
        self.look()
        return handle

    def wait(self, handles: Sequence[Any], timeout_s: float) -> None:
        """Sleep until a job ends, or until the timeout."""
        sleep_until(lambda: any(handle.poll() is not None for handle in handles), timeout_s)

    def look(self) -> float:
        """Submit what is kept and read the store if it is time; return when it was last read."""
        now = time.monotonic()
        is_new = bool(self._buffer) and not self._problem
        if is_new or now - self._looked >= self.settings.look_s:
            self._looked = now
            self.safely(self._exchange)
        return self._looked

    def live(self, key: str) -> LiveRecord | None:
        """Return what was last read of the lease of a job, None if there is none."""
        return self._live.get(key)

    def forget(self, handle: WorkersHandle) -> bool:
        """Return whether a job was not submitted yet; then it never is."""
        is_here = handle in self._buffer
        if is_here:
            self._buffer.remove(handle)
        return is_here

    def bring(self, key: str, path: Path, config: RunConfig) -> None:
        """Bring a run without its checkpoints into its directory; see `bring_run`."""
        bring_run(self.submitter.store, self.submitter.run(key), path, config)

    def safely(self, act: Callable[[], object]) -> bool:
        """Do something in the store; return whether it worked: it is tried again if not."""
        try:
            act()
        except (StoreError, OSError) as error:
            if str(error) != self._problem:
                log.warning("%s; it is tried again", error)
            self._problem = str(error)
            return False
        self._problem = ""
        return True

    def _exchange(self) -> None:
        if self._buffer:
            waiting = list(self._buffer)
            self.submitter.submit([h.record | self.more_of(h.key) for h in waiting])
            for line in self.start_machines([handle.key for handle in waiting]):
                log.info("%s", line)
            for handle in waiting:
                handle.is_submitted = True
            self._buffer = [handle for handle in self._buffer if handle not in waiting]
        self._live = self.submitter.live()


class WorkersHandle:
    """A job in a store; the leases of its workers say how it goes on."""

    def __init__(self, launcher: WorkersLauncher, spec: JobSpec) -> None:
        self._launcher, self._spec = launcher, spec
        self._run_dir: Path | None = None
        if spec.is_run:
            config = spec.data["config"]
            self._run_dir = Path(config["run_dir"])
            self.key = "/".join(self._run_dir.parts[-3:])
            self.record = run_record(self.key, config, spec.data["command"])
            if (spec.data.get("report") or {}).get("metric") is not None:
                self.record["follow"] = True
        else:
            self.key = f"tasks/job/{uuid.uuid4().hex}"
            self.record = {
                "event": "added",
                "job": self.key,
                "title": spec.name,
                "target": spec.target,
                "data": spec.data,
                "limits": asdict(spec.limits),
            }
        self._end: JobEnd | None = None
        self.is_submitted = False
        # What its worker is asked, why, and whether that is in the store.
        self._asked: str | None = None
        self._reason = ""
        self._is_told = False
        self._is_enough = False
        self._seen_step, self._tried = 0, float("-inf")

    def poll(self) -> JobEnd | None:
        """Return how it ended, None while it waits or runs; its worker enforces its limits."""
        if self._end is None:
            looked = self._launcher.look()
            if self._end is None and looked > self._tried:
                self._tried = looked
                self._carry_out()
                self._end = self._find_end()
        return self._end

    def stop(self) -> None:
        """Ask its worker to stop it; a job that nobody has begun is cancelled."""
        self._ask(STOP, "stopped by its command")

    def kill(self) -> None:
        """Ask its worker to end it now."""
        self._ask(KILL, "stopped by its command")

    def end_early(self, reason: str) -> None:
        """Ask its worker to stop a run that is good enough, or hopeless: it ends with 74."""
        self._is_enough = True
        self._ask(STOP, reason)

    def evaluations(self) -> list[dict[str, Any]]:
        """Return the evaluations that were recorded since the last call: numbers by name."""
        live = self._launcher.live(self.key)
        told = None if live is None else live.record.get("evaluations")
        found = []
        for record in told if isinstance(told, list) else []:
            step = finite(record.get("step")) if isinstance(record, dict) else None
            if step is not None and step > self._seen_step:
                found.append({**record, "step": int(step)})
        self._seen_step = max([self._seen_step, *(record["step"] for record in found)])
        return found

    def progress(self) -> Progress:
        """Return how far it is, as its worker told last."""
        live = self._launcher.live(self.key)
        return Progress() if live is None else progress_of(live.record)

    def _ask(self, request: str, reason: str) -> None:
        if self._end is not None or self._asked in (KILL, request):
            return
        if self._launcher.forget(self):
            self._end = JobEnd(-signal.SIGKILL if request == KILL else EXIT_SIGTERM)
            return
        self._asked, self._reason, self._is_told = request, reason, False
        self._carry_out()

    def _carry_out(self) -> None:
        request, live = self._asked, self._launcher.live(self.key)
        if request is None or not self.is_submitted:
            return
        # Nobody obeys where the worker is gone: the lease is ended here then.
        is_gone = live is not None and live.state == RUNNING and not live.is_trained
        gone = live.tag if live is not None and is_gone else None
        if self._is_told and gone is None:
            return
        submitter = self._launcher.submitter
        run, reason = submitter.run(self.key), self._reason
        ask_it = functools.partial(ask, submitter.store, run, request, reason, gone=gone)
        self._is_told = self._launcher.safely(ask_it)

    def _find_end(self) -> JobEnd | None:
        live = self._launcher.live(self.key) if self.is_submitted else None
        if live is None or live.state not in ENDED:
            return None
        try:
            return self._end_of(live) if self._launcher.safely(self._bring) else None
        except (DamagedFolderError, OutsideError) as error:
            return JobEnd(EXIT_FAILED, printable(error))

    def _bring(self) -> None:
        if self._run_dir is None:
            submitter = self._launcher.submitter
            append_log(submitter.store, submitter.run(self.key), self._spec.log)
        else:
            config = validate_config(self._spec.data["config"])
            self._launcher.bring(self.key, self._run_dir, config)

    def _end_of(self, live: LiveRecord) -> JobEnd:
        record, state = live.record, live.state
        if state == FINISHED:
            return JobEnd(0)
        limit, reason = (_text(record.get(name)) for name in ("limit", "reason"))
        code = record.get("code")
        if type(code) is int:
            end = JobEnd(code, limit)
        elif state == CANCELLED:
            end = JobEnd(-signal.SIGKILL if self._asked == KILL else EXIT_SIGTERM, limit)
        else:
            end = JobEnd(EXIT_FAILED, limit or reason)
        if state == CANCELLED and self._is_enough:
            return JobEnd(EXIT_ENDED)
        if state == CANCELLED and self._asked is None:
            return JobEnd(end.code, limit or f"cancelled: {reason or 'no reason is given'}")
        return end


def progress_of(record: Mapping[str, Any]) -> Progress:
    """Return how far a run is, as its lease says."""
    evaluation = record.get("evaluation")
    mean = evaluation.get("mean_return") if isinstance(evaluation, Mapping) else None
    steps = max(0, int(finite(record.get("steps")) or 0))
    return Progress(steps, finite(record.get("rate")), finite(mean))


def _text(value: object) -> str | None:
    return printable(value) if isinstance(value, str) and value else None
