"""Runs a study: a free place asks for a trial at once, whatever the others are doing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rlzoo_plus.config.own_code import UntrustedError
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.infra.launcher import EXIT_BUSY, EXIT_ENDED, EXIT_FAILED, JobEnd, JobSpec, Launcher
from rlzoo_plus.infra.scheduler import Scheduler, stop_code
from rlzoo_plus.sweeps.presence import Presence
from rlzoo_plus.tuning.lease import Ownership, drop_artifacts
from rlzoo_plus.tuning.study import AskedTrial, Study
from rlzoo_plus.tuning.study_plan import StudyPlan
from rlzoo_plus.tuning.trial_run import Outcome, TrialRun
from rlzoo_plus.tuning.trials import TrialState

_LOOK_AROUND_S = 2.0
_BUSY_S = 1.0
# So many draws in a row that are no configuration, or trials that fail, are no accident.
MOST_IN_A_ROW = 20
_MOST_FAILURES = 5


@dataclass
class Progress:
    """What a tuner tells whoever shows it.

    Attributes:
        running: The trials in its hands.
        notes: What else happened, each once.
    """

    running: list[TrialRun] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class Tuner(Scheduler[TrialRun]):
    """Asks for trials, runs them, and tells what became of them, until there are enough.

    A trial in hand keeps its slot while it waits for its next run.
    """

    def __init__(
        self,
        plan: StudyPlan,
        study: Study,
        launcher: Launcher,
        ended: Callable[[int, TrialState, str], None] = lambda number, state, reason: None,
        tick: Callable[[Progress], None] = lambda progress: None,
    ) -> None:
        """Take a study; no trial is asked for yet.

        Args:
            plan: What is to be done.
            study: Where the trials are kept.
            launcher: Where their runs are made.
            ended: Called with each trial that ended here.
            tick: Called some times a second.
        """
        super().__init__(launcher)
        self.plan, self.study = plan, study
        self.progress = Progress()
        self._ended, self._tick = ended, tick
        self._in_a_row = self._failures = 0
        self._is_over = False
        self._left: set[int] = set()
        self._started = time.monotonic()
        self._looked = self._beaten = float("-inf")

    @property
    def running(self) -> list[TrialRun]:
        """The trials in hand."""
        return self.progress.running

    def run(self) -> int:
        """Run trials; return 0, 1 if all failed, 75 or 130 if it was stopped.

        Raises:
            ConfigError: The space gives nothing that could be run.
        """
        with Presence(self.plan.folder) as self._presence:
            self._ownership = Ownership(self.plan, self._presence)
            self.run_loop()
        if self.stop_signal is not None:
            return stop_code(self.stop_signal)
        return 0 if self.study.best(1) else EXIT_FAILED

    def is_asked_to_stop(self) -> bool:
        """Tell whether `study cancel` was called."""
        return self._presence.is_asked_to_stop()

    def before_round(self) -> None:
        """Say that this controller lives, and take up what dead ones have left."""
        now = time.monotonic()
        if now - self._beaten >= self.plan.hpo.heartbeat_s:
            self._beaten = now
            self.study.beat([trial.number for trial in self.running])
        if now - self._looked < _LOOK_AROUND_S or self.stop_signal is not None:
            return
        self._looked = now
        requeued = self.study.requeue_orphans(self._ownership.is_dead)
        for number in requeued:
            self.progress.notes.append(f"trial {number} was left by a dead process; it goes on")
        self._is_over = False

    def after_round(self) -> None:
        """Let the caller show how far it is."""
        self._tick(self.progress)

    def after_loop(self) -> None:
        """Lay down what was stopped: whoever comes next goes on from its checkpoint."""
        self.study.requeue_orphans(self._ownership.is_mine, counts=False)

    def next_job(self) -> TrialRun | None:
        """Return a trial in hand whose next run is due, or one that was just asked for."""
        for trial in self.running:
            if trial.is_due():
                return trial
        if self._is_time_up():
            self._is_over = True
        while len(self.running) < self.launcher.slots and not self._is_over:
            trial = self._ask()
            if trial is None:
                continue
            self._in_a_row = 0
            self.running.append(trial)
            # A lost attempt may have finished all its runs.
            outcome = trial.skip_finished()
            if outcome is None:
                return trial
            self._end(trial, outcome)
        return None

    def spec_of(self, job: TrialRun) -> JobSpec:
        """Return the trial's present run as a launcher takes it."""
        return job.start()

    def on_refused(self, job: TrialRun, error: Exception) -> None:
        """End a trial whose run cannot be started."""
        self._end(job, job.refused(error))

    def on_end(self, job: TrialRun, end: JobEnd, ran_s: float) -> None:
        """Let a trial go on with its next run, or end it."""
        if self._is_stopped(end):
            self.running.remove(job)
        elif end.code == EXIT_BUSY:
            # An earlier attempt is still writing its last checkpoint.
            job.wait(_BUSY_S)
        elif (outcome := job.judge(end)) is not None:
            self._end(job, outcome)

    def has_more(self) -> bool:
        """Tell whether a trial in hand waits, or trials of others may come back to the queue."""
        return bool(self.running) or not self._is_over or self._others_run()

    def _others_run(self) -> bool:
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

    def _is_time_up(self) -> bool:
        return time.monotonic() - self._started > self._budget_s()

    def _budget_s(self) -> float:
        minutes = self.plan.hpo.timeout_minutes
        return float("inf") if minutes is None else 60.0 * minutes

    def _ask(self) -> TrialRun | None:
        """Ask for a trial and draw its values; return None if there is none, or it cannot be run.

        Raises:
            UntrustedError: It may import code. The user decides; the next command takes it up.
        """
        asked = self.study.ask(self._ownership.owner)
        if asked is None:
            self._is_over = True
            return None
        overrides = self._draw(asked)
        if overrides is None:
            return None
        try:
            self.study.set_overrides(asked.number, overrides)
            return TrialRun(self.plan, self.study, asked, overrides)
        except UntrustedError:
            raise
        except ConfigError as error:
            self._refuse(asked.number, str(error))
            return None

    def _draw(self, asked: AskedTrial) -> list[str] | None:
        """Return what a trial changes, None if the user's function does not want it.

        The first trial of a warm start is what `train` takes; its parameters are the nearest that
        the sampler knows. A lost attempt keeps what it had, even if the space has changed.
        """
        from optuna import TrialPruned

        try:
            drawn = self.study.draw(asked, self.plan.draw)
        except TrialPruned as error:
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
        return drawn if asked.overrides is None else list(asked.overrides)

    def _refuse(self, number: int, reason: str) -> None:
        self.study.invalid(number, reason)
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise ConfigError(
                f"hpo.space: {self._in_a_row} draws in a row are no configuration, the last: "
                f"{reason} Narrow the space."
            )

    def _is_stopped(self, end: JobEnd) -> bool:
        return (
            self.stop_signal is not None
            and end.limit is None
            and end.code not in (0, 1, 2, EXIT_ENDED)
        )

    def _end(self, trial: TrialRun, outcome: Outcome) -> None:
        self.running.remove(trial)
        state = outcome.state
        if not self._tell(trial.number, outcome):
            note = f"trial {trial.number} was taken up by another process, which goes on with it"
            self.progress.notes.append(note)
            return
        self._failures = self._failures + 1 if state is TrialState.FAILED else 0
        drop_artifacts(self.plan, self.study)
        self._ended(trial.number, state, outcome.reason)
        if state is TrialState.FAILED and not self.study.best(1):
            self._give_up(trial, outcome)

    def _give_up(self, trial: TrialRun, outcome: Outcome) -> None:
        """End a study of which no trial will give anything.

        Raises:
            ConfigError: That is so.
        """
        if outcome.missing:
            env = self.plan.base.env.name
            raise ConfigError(
                f"hpo.objectives: {outcome.reason}, and env={env} will not tell it to others. "
                "Aim at something else."
            )
        if self._failures >= _MOST_FAILURES:
            raise ConfigError(
                f"the first {self._failures} trials failed, the last: {outcome.reason}. "
                f"See {self.plan.folder / trial.folder}."
            )

    def _tell(self, number: int, outcome: Outcome) -> bool:
        """Tell how a trial ended; return False if it is no longer ours."""
        if outcome.state is TrialState.DONE:
            return self.study.done(number, outcome.values, outcome.metrics)
        if outcome.state is TrialState.PRUNED:
            return self.study.prune(number, outcome.reason, outcome.metrics)
        return self.study.fail(number, outcome.reason)
