"""A trial of a tuner: its runs, one seed after the other, and its outcome."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rlzoo_plus.analysis.progress import Progress, read_progress
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.records import iter_records
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import EXIT_ENDED
from rlzoo_plus.sweeps.controller import job_spec
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec
from rlzoo_plus.sweeps.launchers.workers import WorkersHandle
from rlzoo_plus.sweeps.states import explain_end
from rlzoo_plus.sweeps.sweep_job import SweepJob
from rlzoo_plus.tuning.objectives import RUNGS, mean_metrics, run_metrics, rung_values
from rlzoo_plus.tuning.study import AskedTrial, Study
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.trial_job import TRIAL
from rlzoo_plus.tuning.trial_reporter import follow
from rlzoo_plus.tuning.trials import TrialState

_NOT_A_NUMBER = re.compile(r"\b(nan|inf)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Outcome:
    """How a trial ended: done, pruned or failed, with all that was measured."""

    state: TrialState
    values: tuple[float, ...] = ()  # The objectives' values, if it is done
    metrics: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    missing: tuple[str, ...] = ()  # Objectives that no finished run measures


@dataclass
class _Wish:
    reason: str | None = None  # Why the present run is to end, as its watcher says


class TrialRun:
    """The runs of a trial, of which one trains at a time."""

    def __init__(
        self, plan: StudyPlan, study: Study, asked: AskedTrial, overrides: list[str]
    ) -> None:
        """Take a trial; its first run is due. Raises as `StudyPlan.trial_config`."""
        self.plan, self.study = plan, study
        self.number, self.folder = asked.number, asked.folder
        self.seed_index = self.killed = 0
        first = plan.trial_config(overrides, self.folder)
        self._jobs = [self._make_job(first, index) for index in range(plan.hpo.seeds)]
        # When its next run may begin, in `time.monotonic` [s]; never while one runs.
        self._due = -math.inf
        self._reporter = study.reporter(self.number)
        # Of a run that a worker elsewhere trains: what its evaluations are given to here.
        self._watcher: Any = None
        self._watched_step, self._wish = 0, _Wish()
        self._told = Progress()

    @property
    def job(self) -> SweepJob:
        """The run that trains now, as a job."""
        return self._jobs[self.seed_index]

    @property
    def progress(self) -> Progress:
        """How far that run is."""
        return self._told if self._told.steps else read_progress(self.job.run_dir)

    def skip_finished(self) -> Outcome | None:
        """Go on to the first run that is not finished; return the outcome if there is none."""
        while self.job.is_finished():
            if self.seed_index + 1 >= self.plan.hpo.seeds:
                return self._done()
            reason = self._pruned_between_seeds()
            if reason is not None:
                return self._ended(TrialState.PRUNED, reason)
            self.seed_index += 1
            self.killed = 0
        return None

    def start(self) -> JobSpec:
        """Return the present run as a launcher takes it; it runs from now on."""
        self._due = math.inf
        self.job.check_place()
        spec, reporter = job_spec(self.job, TRIAL), self._reporter
        report: dict[str, Any] = {
            "metric": None if reporter is None else self.plan.followed,
            "seed_index": self.seed_index,
            "earlier": [str(job.path) for job in self._jobs[: self.seed_index]],
            "trial": None if reporter is None else asdict(reporter),
        }
        self._watcher = follow(report, self.job.config.n_timesteps)
        self._watched_step, self._wish, self._told = 0, _Wish(), Progress()
        seed = f", seed {self.job.config.seed}" if self.seed_index else ""
        data = {**spec.data, "report": report}
        return replace(spec, name=f"trial {self.number}{seed}", data=data, is_run=True)

    def is_due(self) -> bool:
        """Return whether it does not run, and has waited long enough."""
        return time.monotonic() >= self._due

    def wait(self, duration_s: float) -> None:
        """Let the present run begin again in a while."""
        self._due = time.monotonic() + duration_s

    def failed(self, reason: str) -> Outcome:
        """Return the outcome of a trial that failed."""
        return self._ended(TrialState.FAILED, reason)

    def _ended(self, state: TrialState, reason: str) -> Outcome:
        return Outcome(state, metrics=self._metrics(), reason=reason)

    def watch(self, handle: WorkersHandle) -> None:
        """Report what the worker of the present run told, and let it end the run if pruned."""
        self._told = handle.progress()
        self._report(handle.evaluations())
        if self._wish.reason is not None:
            handle.end_early(self._wish.reason)

    def report_rest(self) -> None:
        """Report the evaluations of a worker's run that were not seen while it trained."""
        self._report(iter_records(self.job.run_dir.evaluations_file))

    def _report(self, records: Iterable[dict[str, Any]]) -> None:
        for record in records:
            step = record.get("step")
            if self._watcher is None or self._wish.reason is not None:
                return
            if type(step) is int and step > self._watched_step:
                self._watched_step = step
                self._watcher(record, self._wish)

    def judge(self, end: JobEnd) -> Outcome | None:
        """Return what an ended process means; None if the trial goes on, with another one."""
        self._due = time.monotonic()
        if self.job.is_finished():
            return self.skip_finished()
        reason = explain_end(end, self.job.run_dir)
        if end.limit is None and end.code == EXIT_ENDED:
            told = self.job.run_dir.read_status().get("message", "pruned")
            message = self._wish.reason or told
            return self._ended(TrialState.PRUNED, str(message))
        if end.limit is None and end.code < 0:
            self.killed += 1
            if self.killed <= self.plan.hpo.retries:
                return None
        if end.code == 1 and _NOT_A_NUMBER.search(reason):
            # The sampler learns from it, as it would not from a failure.
            return self._ended(TrialState.PRUNED, f"diverged: {reason}")
        times = f", {self.killed} times" if self.killed > 1 else ""
        return self.failed(f"{reason}{times}")

    def _pruned_between_seeds(self) -> str | None:
        metric = self.plan.followed
        if metric is None or self._reporter is None:
            return None
        steps = self.plan.trial_timesteps
        last = [
            values[max(values)]
            for job in self._jobs[: self.seed_index + 1]
            if (values := rung_values(job.run_dir, steps, metric))
        ]
        if not last:
            return None
        return self._reporter.report(sum(last) / len(last), RUNGS * (self.seed_index + 1))

    def _done(self) -> Outcome:
        metrics, objectives = self._metrics(), self.plan.hpo.objectives
        missing = tuple(name for name in objectives if name not in metrics)
        if missing:
            reason = f"the runs have no {', '.join(missing)}"
            return Outcome(TrialState.FAILED, metrics=metrics, reason=reason, missing=missing)
        values = tuple(metrics[name] for name in objectives)
        if not all(math.isfinite(value) for value in values):
            return Outcome(TrialState.PRUNED, metrics=metrics, reason="diverged")
        return Outcome(TrialState.DONE, values, metrics)

    def _metrics(self) -> dict[str, float]:
        return mean_metrics([run_metrics(job.run_dir) for job in self._jobs[: self.seed_index + 1]])

    def _make_job(self, first: RunConfig, index: int) -> SweepJob:
        path, seed = self.plan.run_path(self.folder, index), self.plan.base.seed + index
        config = first.model_copy(update={"seed": seed, "run_dir": str(path)})
        named = [f"study={self.plan.name}", f"trial={self.number}", f"seed={seed}"]
        command = command_line(["rlzoo-plus", "train", *named, f"run_dir={path}"])
        return SweepJob(self.plan.folder, path, config, command)
