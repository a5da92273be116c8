"""The lease on a trial: claimed by one controller, kept alive, finished once, or retried.

A claim, an ending and a retry may each be interrupted anywhere and be done again, by the same
process or by another one.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage, fail_stale_trials
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.sweeps.presence import Presence, is_present
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    import optuna

    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import StudyPlan

# Between claiming a trial from the queue and signing it there are milliseconds.
_UNSIGNED_S = 60.0
# How Optuna names what `enqueue_trial` and `Trial.set_constraint` store.
_FIXED, _CONSTRAINT = "fixed_params", "constraints:"
# CMA-ES states, which earlier versions let Optuna store, are long and of no use to a retry.
_NOT_INHERITED = (_FIXED, _CONSTRAINT.rstrip(":"))
_OVER = (TrialState.DONE, TrialState.PRUNED, TrialState.FAILED)

IsDead = Callable[[str], bool | None]
log = logging.getLogger(__name__)


class Leases:
    """A study's trials as controllers claim, keep and finish them, in a storage shared by many."""

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, n_trials: int, grid_size: int | None
    ) -> None:
        """Look at a study.

        Args:
            study: The study.
            storage: Its storage.
            n_trials: The most trials.
            grid_size: Points of the grid that is searched, None for other searches.
        """
        self._study, self._storage = study, storage
        self._study_id = storage.get_study_id_from_name(study.study_name)
        self._n_trials, self._grid_size = n_trials, grid_size
        # Journals have no heartbeats: who can read one can see its controllers' locks beside it.
        self._heartbeats = storage if isinstance(storage, RDBStorage) else None

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number."""
        trials = self._study.get_trials(deepcopy=False)
        return sorted(trials, key=lambda trial: trial.number)

    def trial_id(self, number: int) -> int:
        """Return the storage's id of a trial."""
        return self._storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    def claim(self, owner: str, ticket: str) -> int | None:
        """Return the number of a trial that is ours alone, None if there are enough.

        Args:
            owner: Who claims it.
            ticket: A name for this request: it can be repeated when its answer was lost.
        """
        trials = self.trials()
        mine = _with_ticket(trials, ticket)
        if not mine:
            waiting = self._claim_waiting(trials)
            if waiting is not None:
                return waiting
            if len(noted.places(trials)) >= self._limit(trials):
                return None
            self._make(owner, ticket)
            trials = self.trials()
            mine = _with_ticket(trials, ticket)
        running = [trial for trial in mine if trial.state is OptunaState.RUNNING]
        return self._keep_first(running, trials)

    def sign(self, number: int, owner: str) -> FrozenTrial:
        """Note who has claimed a trial, let its heartbeats begin, and return it."""
        trial_id = self.trial_id(number)
        frozen = self._storage.get_trial(trial_id)
        if owner and frozen.user_attrs.get(noted.OWNER) != owner:
            self._storage.set_trial_user_attr(trial_id, noted.OWNER, owner)
        self._start_heartbeats(frozen, renew=True)
        return frozen

    def enqueue(self, params: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
        """Queue the study's first trial, if there is none yet."""
        # Two who find the study empty both queue one; whoever claims the second one drops it.
        if self.trials():
            return False
        self._study.enqueue_trial(dict(params), user_attrs={**attributes, noted.WARM: True})
        return True

    def beat(self, numbers: Sequence[int]) -> None:
        """Say that trials are in work; a journal needs no such thing."""
        if self._heartbeats is not None:
            for number in numbers:
                self._heartbeats.record_heartbeat(self.trial_id(number))

    def finish(
        self,
        number: int,
        state: str,
        values: Sequence[float] | None = None,
        attributes: Mapping[str, Any] | None = None,
        violations: Mapping[str, float] | None = None,
    ) -> bool:
        """End a trial; return False if it had ended otherwise before.

        Args:
            number: The trial.
            state: COMPLETE, PRUNED or FAIL.
            values: The objectives' values of a complete trial.
            attributes: What is noted beside.
            violations: How much each constraint is broken, by its key.
        """
        trial_id, ending, noted_too = self.trial_id(number), OptunaState[state], attributes or {}
        try:
            # Attributes first: a trial that has ended cannot be changed.
            for key, value in noted_too.items():
                self._storage.set_trial_user_attr(trial_id, key, value)
            for key, value in (violations or {}).items():
                self._storage.set_trial_system_attr(trial_id, _CONSTRAINT + key, value)
            told = values
            if ending is OptunaState.PRUNED:
                told = _last_reported(self._storage.get_trial(trial_id))
            return self._storage.set_trial_state_values(trial_id, ending, told)
        except UpdateFinishedTrialError:
            # It may have been us: the server went away before it could answer.
            trial = self._storage.get_trial(trial_id)
            is_same = values is None or list(trial.values or ()) == list(values)
            kept = all(trial.user_attrs.get(key) == value for key, value in noted_too.items())
            return trial.state is ending and is_same and kept

    def retry_lost(self, is_dead: IsDead, counts: bool) -> list[int]:
        """Give up the trials of dead owners, and queue another attempt for each.

        Args:
            is_dead: Tells of an owner whether it is dead, None if that cannot be seen from here.
                Then a database tells by heartbeats, and in a journal it counts as alive.
            counts: Whether a lost attempt is one of `trials.MOST_LOSSES`.

        Returns:
            The numbers of the attempts that have a successor now.
        """
        running = [trial for trial in self.trials() if trial.state is OptunaState.RUNNING]
        verdicts = [_ask(is_dead, trial) for trial in running]
        for trial, verdict in zip(running, verdicts, strict=True):
            if verdict or (verdict is None and self._heartbeats is None and _is_unsigned(trial)):
                self._give_up_lost(trial, counts)
            elif None in verdicts:
                # Those that are seen to live are vouched for. A trial that never had a heartbeat
                # would count as alive for ever, and gets its first one here.
                self._start_heartbeats(trial, renew=verdict is False)
        if self._heartbeats is not None and None in verdicts:
            fail_stale_trials(self._study)
        lost = lost_attempts(self.trials())
        for trial in lost:
            self._study.add_trial(successor_of(trial, counts))
        return [trial.number for trial in lost]

    def _make(self, owner: str, ticket: str) -> None:
        # Signed from the first moment on: whoever dies next leaves no trial without an owner.
        attributes = {noted.OWNER: owner, noted.TICKET: ticket}
        self._study.add_trial(create_trial(state=OptunaState.RUNNING, user_attrs=attributes))

    def _keep_first(self, mine: Sequence[FrozenTrial], trials: Sequence[FrozenTrial]) -> int | None:
        # When the answer to making a trial is lost, Optuna makes another one.
        for double in mine[1:]:
            self._give_up(double, noted.SURPLUS, "made twice")
        if not mine:
            return None
        if mine[0].number in noted.places(trials)[: self._limit(trials)]:
            return mine[0].number
        self._give_up(mine[0], noted.SURPLUS, "one more than hpo.n_trials")
        return None

    def _claim_waiting(self, trials: Sequence[FrozenTrial]) -> int | None:
        wanted = noted.places(trials)[: self._limit(trials)]
        for trial in trials:
            if trial.state is not OptunaState.WAITING:
                continue
            double = noted.is_double(trial, trials)
            if (double or trial.number in wanted) and self._begin(trial):
                if not double:
                    return trial.number
                self._give_up(trial, noted.SURPLUS, "queued twice")
        return None

    def _begin(self, trial: FrozenTrial) -> bool:
        """Claim a queued trial; return False if somebody else was faster."""
        with contextlib.suppress(UpdateFinishedTrialError):
            trial_id = self.trial_id(trial.number)
            return self._storage.set_trial_state_values(trial_id, OptunaState.RUNNING)
        return False

    def _limit(self, trials: Sequence[FrozenTrial]) -> int:
        if self._grid_size is None:
            return self._n_trials
        # A point of the grid that is no configuration has been tried too.
        invalid = [t for t in trials if t.user_attrs.get(noted.KIND) == noted.INVALID]
        return min(self._n_trials, max(self._grid_size - len(invalid), 0))

    def _start_heartbeats(self, trial: FrozenTrial, *, renew: bool) -> None:
        """Record a heartbeat if a trial has none yet, or one is due.

        The server's clock measures the silence; those of the machines may differ.
        """
        if self._heartbeats is None:
            return
        is_first = noted.BEATS not in trial.user_attrs
        if is_first or renew:
            self._heartbeats.record_heartbeat(self.trial_id(trial.number))
        if is_first:
            with contextlib.suppress(UpdateFinishedTrialError):
                trial_id = self.trial_id(trial.number)
                self._storage.set_trial_user_attr(trial_id, noted.BEATS, True)

    def _give_up_lost(self, trial: FrozenTrial, counts: bool) -> None:
        losses = noted.losses_of(trial)
        kind = noted.FAILED if counts and losses >= noted.MOST_LOSSES else noted.REQUEUED
        reason = noted.lost_text(losses) if counts else "laid down by its controller"
        self._give_up(trial, kind, reason)

    def _give_up(self, trial: FrozenTrial, kind: str, reason: str) -> bool:
        return self.finish(trial.number, "FAIL", None, {noted.KIND: kind, noted.REASON: reason})


def lost_attempts(trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
    """Return the attempts that were given up and have no successor yet.

    Whoever gave one up may have died before the second step. Two who do it at once make two
    successors, of which only the first is ever run.
    """
    taken_up = noted.successors(trials)
    return [
        trial
        for trial in trials
        if noted.state_of(trial) is TrialState.REQUEUED and trial.number not in taken_up
    ]


def successor_of(trial: FrozenTrial, counts: bool) -> FrozenTrial:
    """Return a waiting trial that goes on where a lost attempt has ended.

    Args:
        trial: The lost attempt.
        counts: Whether it used up one of the attempts.
    """
    system = {
        key: value
        for key, value in trial.system_attrs.items()
        if not key.startswith(_NOT_INHERITED) and ":optimizer" not in key
    }
    inherited = trial.user_attrs.get(noted.OVERRIDES)
    user: dict[str, Any] = {
        noted.RETRY_OF: trial.number,
        noted.ROOT: noted.root_of(trial),
        noted.FOLDER: noted.folder_of(trial),
        noted.ATTEMPT: noted.losses_of(trial) + int(counts),
        **({} if inherited is None else {noted.OVERRIDES: inherited}),
    }
    # What it was to begin with may not all have been drawn.
    params = {**trial.system_attrs.get(_FIXED, {}), **trial.params}
    return create_trial(
        state=OptunaState.WAITING,
        user_attrs=user,
        system_attrs={**system, _FIXED: params},
        intermediate_values=dict(trial.intermediate_values),
    )


def _with_ticket(trials: Sequence[FrozenTrial], ticket: str) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.user_attrs.get(noted.TICKET) == ticket]


def _last_reported(trial: FrozenTrial) -> list[float] | None:
    """Return what Optuna takes for a pruned trial's value."""
    step = trial.last_step
    if step is None or not math.isfinite(trial.intermediate_values[step]):
        return None
    return [trial.intermediate_values[step]]


def _ask(is_dead: IsDead, trial: FrozenTrial) -> bool | None:
    owner = trial.user_attrs.get(noted.OWNER)
    return is_dead(owner) if isinstance(owner, str) and owner else None


def _is_unsigned(trial: FrozenTrial) -> bool:
    """Tell whether somebody died between claiming a trial of a journal and signing it."""
    if trial.user_attrs.get(noted.OWNER) or trial.datetime_start is None:
        return False
    return (datetime.now() - trial.datetime_start).total_seconds() > _UNSIGNED_S


class Ownership:
    """The name under which a controller takes trials.

    A journal lies in the study's directory, and so do the locks of all controllers that write to
    it. A database may have controllers in other directories and on other machines, of which
    only their heartbeats are known here; the name says where its lock is to be looked for.
    """

    def __init__(self, plan: StudyPlan, presence: Presence) -> None:
        self._folder = plan.folder
        self._here = "" if plan.hpo.storage == "journal" else _place(plan)
        self.owner = f"{self._here}{presence.name}"

    def is_mine(self, owner: str) -> bool:
        """Tell whether a trial is in the hands of this controller."""
        return owner == self.owner

    def is_dead(self, owner: str) -> bool | None:
        """Tell whether a controller is no more; None if that cannot be seen from here."""
        if not owner.startswith(self._here):
            return None
        name = owner.removeprefix(self._here)
        if not name or "/" in name or "\\" in name:
            return None
        return owner != self.owner and not is_present(self._folder, name)


def _place(plan: StudyPlan) -> str:
    folder = hashlib.sha256(str(plan.folder.resolve()).encode()).hexdigest()[:8]
    return f"{platform.node()}-{folder}-"


def drop_artifacts(plan: StudyPlan, study: Study) -> list[int]:
    """Remove the policies, checkpoints and logs of trials that need not keep them.

    Configurations, evaluations, metrics, results and the output of the jobs stay.

    Returns:
        The numbers of the trials that lost something.
    """
    keep = plan.hpo.keep
    if keep == "all":
        return []
    best = study.best(max(plan.hpo.retrain.best, 1)) if keep == "best" else []
    kept = {view.number for view in best}
    views = [view for view in study.trials() if view.state in _OVER and view.number not in kept]
    return [view.number for view in views if _drop(plan, view)]


def _drop(plan: StudyPlan, view: TrialView) -> bool:
    dropped = False
    for index in range(plan.hpo.seeds):
        run = RunDir(plan.run_path(view.folder, index))
        for folder in (run.checkpoints().root, run.best, run.final, run.tensorboard, run.monitor):
            if folder.is_dir() and _is_inside(plan.folder, folder):
                shutil.rmtree(folder, ignore_errors=True)
                dropped = True
    return dropped


def _is_inside(study: Path, folder: Path) -> bool:
    try:
        check_inside(study, folder)
    except OutsideError as error:
        log.warning("left alone: %s", error)
        return False
    return True
