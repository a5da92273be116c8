"""Runs a study: a free worker asks for a trial at once, whatever the others are doing."""

from __future__ import annotations

import hashlib
import logging
import platform
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.own_code import UntrustedError
from rlzoo_plus.errors import EXIT_BUSY, EXIT_ENDED, EXIT_FAILED, ConfigError
from rlzoo_plus.sweeps.launchers.launcher import JobEnd, JobSpec, Launcher
from rlzoo_plus.sweeps.launchers.scheduler import Scheduler, stop_code
from rlzoo_plus.sweeps.launchers.workers import WorkersHandle, WorkersLauncher
from rlzoo_plus.sweeps.presence import Presence, is_present
from rlzoo_plus.tuning.study import Study
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.trial_run import Outcome, TrialRun
from rlzoo_plus.tuning.trials import TrialState
from rlzoo_plus.tuning.with_optuna import optuna

_LOOK_AROUND_S = 2.0
_BUSY_S = 1.0
# So many draws in a row that are no configuration, or trials that fail, are no accident.
MOST_IN_A_ROW = 20
_MOST_FAILURES = 5
log = logging.getLogger(__name__)


class Tuner(Scheduler[TrialRun]):
    """Asks for trials, runs them, and records how they ended, until there are enough.

    A trial keeps its slot while it waits for its next run.
    """

    def __init__(
        self,
        plan: StudyPlan,
        study: Study,
        launcher: Launcher,
        ended: Callable[[int, TrialState, str], None] = lambda number, state, reason: None,
        tick: Callable[[Tuner], None] = lambda tuner: None,
    ) -> None:
        """Take a study; no trial is asked for yet.

        `ended` is called with each trial that ended here, `tick` some times a second.
        """
        super().__init__(launcher)
        self.plan, self.study = plan, study
        self.running: list[TrialRun] = []
        # What else happened, each once.
        self.notes: list[str] = []
        self._ended, self._tick = ended, tick
        self._in_a_row = self._failures = 0
        self._is_over = False
        self._left: set[int] = set()
        # A journal is next to the locks of its controllers. Those of a database may be elsewhere:
        # the name of a controller says where its lock is to be looked for.
        self._here = ""
        if plan.hpo.storage != "journal":
            folder = hashlib.sha256(str(plan.folder.resolve()).encode()).hexdigest()[:8]
            self._here = f"{platform.node()}-{folder}-"
        minutes = plan.hpo.timeout_minutes
        budget_s = float("inf") if minutes is None else 60.0 * minutes
        self._end_time = time.monotonic() + budget_s
        self._looked = self._beaten = float("-inf")

    def run(self) -> int:
        """Run trials; return 0, 1 if all failed, 75 or 130 if it was stopped."""
        with Presence(self.plan.folder) as self._presence:
            self._owner = f"{self._here}{self._presence.name}"
            self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        return 0 if self.study.best(1) else EXIT_FAILED

    def is_asked_to_stop(self) -> bool:
        """Return whether `study cancel` was called."""
        return self._presence.is_asked_to_stop()

    def before_round(self) -> None:
        """Record that this controller is alive, and take up what dead ones have left."""
        now = time.monotonic()
        if now - self._beaten >= self.plan.hpo.heartbeat_s:
            self._beaten = now
            self.study.beat([trial.number for trial in self.running])
        if now - self._looked < _LOOK_AROUND_S or self.stop_signal is not None:
            return
        self._looked = now
        for number in self.study.requeue_orphans(self._is_dead):
            self.notes.append(f"trial {number} was left by a dead process; it continues")
        self._is_over = False

    def after_round(self) -> None:
        """Report what workers elsewhere told, and let the caller show how far it is."""
        for each in self.active:
            if isinstance(each.handle, WorkersHandle):
                each.job.watch(each.handle)
        self._tick(self)

    def run_rounds(self) -> None:
        """Run trials, then give back what was stopped: the next controller resumes it."""
        super().run_rounds()
        self.study.requeue_orphans(lambda owner: owner == self._owner, counts=False)

    def next_job(self) -> TrialRun | None:
        """Return a trial whose next run is due, or one that was just asked for."""
        for trial in self.running:
            if trial.is_due():
                return trial
        self._is_over = self._is_over or self._is_time_up()
        while len(self.running) < self.launcher.slots and not self._is_over:
            asked = self._ask()
            if asked is None:
                continue
            self._in_a_row = 0
            self.running.append(asked)
            # A lost attempt may have finished all its runs.
            outcome = asked.skip_finished()
            if outcome is None:
                return asked
            self._end(asked, outcome)
        return None

    def spec_of(self, job: TrialRun) -> JobSpec:
        """Return the trial's present run as a launcher takes it."""
        return job.start()

    def on_refused(self, job: TrialRun, error: Exception) -> None:
        """End a trial whose run cannot be started; one that a signal came in the way of waits."""
        if self.stop_signal is not None and not isinstance(error, ConfigError):
            self.running.remove(job)
            return
        self._end(job, job.failed(f"cannot be started: {error}"))

    def on_end(self, job: TrialRun, end: JobEnd, ran_s: float) -> None:
        """Let a trial go on with its next run, or end it."""
        if isinstance(self.launcher, WorkersLauncher):
            job.report_rest()
        is_final = end.limit is not None or end.code in (0, 1, 2, EXIT_ENDED)
        if self.stop_signal is not None and not is_final:
            self.running.remove(job)
        elif end.code == EXIT_BUSY:
            # An earlier attempt is still writing its last checkpoint.
            job.wait(_BUSY_S)
        elif (outcome := job.judge(end)) is not None:
            self._end(job, outcome)

    def has_more(self) -> bool:
        """Return whether a trial waits, or trials of others may come back to the queue."""
        if self.running or not self._is_over:
            return True
        if self._is_time_up():
            return False
        views = self.study.trials()
        if any(view.state is TrialState.RUNNING for view in views):
            return True
        waiting = {view.number for view in views if view.state is TrialState.WAITING}
        # Those that are still there when we have asked again are more than hpo.n_trials.
        is_new, self._left = not waiting <= self._left, waiting
        self._is_over = not is_new
        return is_new

    def _is_dead(self, owner: str) -> bool | None:
        """Return whether a controller has ended; None if that cannot be seen from here."""
        name = owner.removeprefix(self._here)
        if not owner.startswith(self._here) or not name or "/" in name or "\\" in name:
            return None
        return owner != self._owner and not is_present(self.plan.folder, name)

    def _is_time_up(self) -> bool:
        return time.monotonic() > self._end_time

    def _ask(self) -> TrialRun | None:
        """Ask for a trial and draw its values; return None if there is none, or it cannot be run.

        Raises:
            UntrustedError: It may import code. The user decides; the next command takes it up.
        """
        asked = self.study.ask(self._owner)
        if asked is None:
            self._is_over = True
            return None
        try:
            drawn = self.study.draw(asked, self.plan.draw)
        except optuna.TrialPruned as error:
            self._refuse(asked.number, str(error) or f"{self.plan.hpo.custom} pruned it.")
            return None
        except (ConfigError, ValueError) as error:
            self.study.invalid(asked.number, str(error))
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"hpo.space is no longer what the study was begun with: {error} "
                "Take it back, or start a new study: hpo.study=NAME."
            ) from error
        # The first trial of a warm start is what `train` takes; its parameters are the nearest ones
        # of the space. A lost attempt keeps what it had, even if the space has changed.
        overrides = drawn if asked.overrides is None else list(asked.overrides)
        try:
            self.study.set_overrides(asked.number, overrides)
            return TrialRun(self.plan, self.study, asked, overrides)
        except UntrustedError:
            raise
        except ConfigError as error:
            self._refuse(asked.number, str(error))
            return None

    def _refuse(self, number: int, reason: str) -> None:
        self.study.invalid(number, reason)
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise ConfigError(
                f"hpo.space: {self._in_a_row} draws in a row are no configuration, the last: "
                f"{reason} Narrow the space."
            )

    def _end(self, trial: TrialRun, outcome: Outcome) -> None:
        """Record how a trial ended."""
        self.running.remove(trial)
        number, state, study = trial.number, outcome.state, self.study
        if state is TrialState.DONE:
            is_ours = study.done(number, outcome.values, outcome.metrics)
        elif state is TrialState.PRUNED:
            is_ours = study.prune(number, outcome.reason, outcome.metrics)
        else:
            is_ours = study.fail(number, outcome.reason)
        if not is_ours:
            note = f"trial {number} was taken up by another process, which continues it"
            self.notes.append(note)
            return
        self._failures = self._failures + 1 if state is TrialState.FAILED else 0
        drop_artifacts(self.plan, study)
        self._ended(number, state, outcome.reason)
        if state is not TrialState.FAILED or study.best(1):
            return
        if outcome.missing:
            env = self.plan.base.env.name
            raise ConfigError(
                f"hpo.objectives: {outcome.reason}, and no trial in env={env} will. "
                "Choose another objective."
            )
        if self._failures >= _MOST_FAILURES:
            raise ConfigError(
                f"the first {self._failures} trials failed, the last: {outcome.reason}. "
                f"See {self.plan.folder / trial.folder}."
            )


def drop_artifacts(plan: StudyPlan, study: Study) -> None:
    """Remove the policies, checkpoints and logs of trials that need not keep them (`hpo.keep`).

    Configurations, evaluations, metrics, results and the output of the jobs stay.
    """
    if plan.hpo.keep == "all":
        return
    best = study.best(max(plan.hpo.retrain.best, 1)) if plan.hpo.keep == "best" else []
    kept = {view.number for view in best}
    over = (TrialState.DONE, TrialState.PRUNED, TrialState.FAILED)
    dropped = [v for v in study.trials() if v.state in over and v.number not in kept]
    for view in dropped:
        for index in range(plan.hpo.seeds):
            run = RunDir(plan.run_path(view.folder, index))
            folders = (run.checkpoints().root, run.best, run.final, run.tensorboard, run.monitor)
            for folder in filter(Path.is_dir, folders):
                try:
                    check_inside(plan.folder, folder)
                except OutsideError as error:
                    log.warning("left alone: %s", error)
                else:
                    shutil.rmtree(folder, ignore_errors=True)
