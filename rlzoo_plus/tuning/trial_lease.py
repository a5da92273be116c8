"""The lease on a trial: claimed by one controller, kept alive, finished once, or retried.

A claim, an ending and a retry may each be interrupted anywhere and repeated, by the same process or
by another one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.objectives import parse_constraints
from rlzoo_plus.tuning.samplers import Grid
from rlzoo_plus.tuning.storage import is_gone, patient
from rlzoo_plus.tuning.stored_study import StoredStudy
from rlzoo_plus.tuning.trials import TrialState
from rlzoo_plus.tuning.with_optuna import FrozenTrial, OptunaState, optuna

UpdateFinishedTrialError = optuna.exceptions.UpdateFinishedTrialError
# Between claiming a trial from the queue and signing it there are milliseconds.
_UNSIGNED_S = 60.0
# How Optuna names what `enqueue_trial` and `Trial.set_constraint` store.
_FIXED, _CONSTRAINT = "fixed_params", "constraints:"
# CMA-ES states, which earlier versions let Optuna store, are long and of no use to a retry.
_NOT_INHERITED = (_FIXED, _CONSTRAINT.rstrip(":"))

IsDead = Callable[[str], bool | None]


class Leases(StoredStudy):
    """A study's trials as controllers claim, keep and finish them, in a storage shared by many."""

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        folder: Path,
        hpo: HpoConfig,
        grid: Grid | None = None,
    ) -> None:
        """Wrap a study; `grid` has the values of each parameter, for `hpo.sampler=grid`."""
        super().__init__(study, storage, folder, hpo.storage)
        self.hpo, self.grid = hpo, grid
        # Journals have no heartbeats: its controllers' locks are in the same directory.
        self._heartbeats = storage if isinstance(storage, optuna.storages.RDBStorage) else None

    @patient
    def claim(self, owner: str, ticket: str) -> int | None:
        """Return the number of a trial that is the owner's alone, None if there are enough.

        The ticket is a name for this request: it can be repeated when its answer was lost.
        """
        trials = self.frozen_trials()
        mine = _with_ticket(trials, ticket)
        if not mine:
            waiting = self._claim_waiting(trials)
            if waiting is not None:
                return waiting
            if len(noted.places(trials)) >= self._limit(trials):
                return None
            # Signed from the beginning: no trial is left without an owner if we die now.
            attributes = {noted.OWNER: owner, noted.TICKET: ticket}
            running = optuna.create_trial(state=OptunaState.RUNNING, user_attrs=attributes)
            self.optuna_study.add_trial(running)
            trials = self.frozen_trials()
            mine = _with_ticket(trials, ticket)
        mine = [trial for trial in mine if trial.state is OptunaState.RUNNING]
        # When the answer to making a trial is lost, Optuna makes another one.
        for double in mine[1:]:
            self._give_up(double, noted.SURPLUS, "made twice")
        if not mine:
            return None
        if mine[0].number in noted.places(trials)[: self._limit(trials)]:
            return mine[0].number
        self._give_up(mine[0], noted.SURPLUS, "one more than hpo.n_trials")
        return None

    @patient
    def enqueue(self, params: Mapping[str, Any], **attributes: Any) -> bool:
        """Queue the first trial with given values, if there is no trial yet.

        Returns:
            Whether it was queued. A grid has all that is to be tried, and takes none.
        """
        # Two that find the study empty both queue one; the one that claims the second drops it.
        if self.grid is not None or self.frozen_trials():
            return False
        attributes[noted.WARM] = True
        self.optuna_study.enqueue_trial(dict(params), user_attrs=attributes)
        return True

    def beat(self, numbers: Sequence[int]) -> None:
        """Record a heartbeat of our trials; a journal needs none."""
        if self._heartbeats is None:
            return
        try:
            for number in numbers:
                self._heartbeats.record_heartbeat(self.trial_id(number))
        except optuna.exceptions.StorageInternalError as error:
            # The next beat will do; the clock that counts stops with the server.
            if not is_gone(error):
                raise

    @patient
    def finish(
        self,
        number: int,
        state: OptunaState,
        attributes: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        values: Sequence[float] | None = None,
    ) -> bool:
        """End a trial, with the objectives' values if it is complete.

        Returns:
            False if it had ended otherwise before.
        """
        finite = {name: float(v) for name, v in (metrics or {}).items() if math.isfinite(v)}
        if finite:
            attributes = {**attributes, noted.METRICS: finite}
        is_measured = finite or state is OptunaState.COMPLETE
        trial_id = self.trial_id(number)
        try:
            # Attributes first: a trial that has ended cannot be changed.
            for key, value in attributes.items():
                self.storage.set_trial_user_attr(trial_id, key, value)
            for constraint in parse_constraints(self.hpo.constraints) if is_measured else ():
                key, violation = _CONSTRAINT + constraint.key, constraint.violation(finite)
                self.storage.set_trial_system_attr(trial_id, key, violation)
            final = values
            if state is OptunaState.PRUNED:
                # Optuna takes what was reported last for a pruned trial's value.
                reports = self.storage.get_trial(trial_id).intermediate_values
                last = reports[max(reports)] if reports else math.nan
                final = [last] if math.isfinite(last) else None
            return self.storage.set_trial_state_values(trial_id, state, final)
        except UpdateFinishedTrialError:
            # It may have been us: the server went away before it could answer.
            trial = self.storage.get_trial(trial_id)
            is_same = values is None or list(trial.values or ()) == list(values)
            kept = all(trial.user_attrs.get(key) == value for key, value in attributes.items())
            return trial.state is state and is_same and kept

    @patient
    def requeue_orphans(self, is_dead: IsDead, counts: bool = True) -> list[int]:
        """Give up the trials of dead owners, and queue another attempt for each.

        Args:
            is_dead: Returns whether an owner is dead, None if that cannot be seen from here. Then
                heartbeats decide in a database, and in a journal it counts as alive.
            counts: Whether a lost attempt is one of `trials.MOST_LOSSES`; False when the owner
                itself gives its trials back.

        Returns:
            The numbers of the attempts that have a successor now.
        """
        running = [trial for trial in self.frozen_trials() if trial.state is OptunaState.RUNNING]
        owners = [trial.user_attrs.get(noted.OWNER) for trial in running]
        verdicts = [is_dead(o) if isinstance(o, str) and o else None for o in owners]
        for trial, verdict in zip(running, verdicts, strict=True):
            if verdict or (verdict is None and self._heartbeats is None and _is_unsigned(trial)):
                losses = noted.losses_of(trial)
                kind = noted.FAILED if counts and losses >= noted.MOST_LOSSES else noted.REQUEUED
                reason = noted.lost_text(losses) if counts else "given back by its controller"
                self._give_up(trial, kind, reason)
            elif None in verdicts:
                # Those that are seen to be alive get a heartbeat. A trial that never had a
                # heartbeat would count as alive for ever, and gets its first one here.
                self.start_heartbeats(trial, renew=verdict is False)
        if self._heartbeats is not None and None in verdicts:
            optuna.storages.fail_stale_trials(self.optuna_study)
        # A controller may have died between giving up an attempt and queueing the next. Two that do
        # it at once make two successors, of which only the first is ever run.
        trials = self.frozen_trials()
        taken_up = noted.successors(trials)
        requeued = [t for t in trials if noted.state_of(t) is TrialState.REQUEUED]
        lost = [trial for trial in requeued if trial.number not in taken_up]
        for trial in lost:
            self.optuna_study.add_trial(successor_of(trial, counts))
        return [trial.number for trial in lost]

    def _claim_waiting(self, trials: Sequence[FrozenTrial]) -> int | None:
        wanted = noted.places(trials)[: self._limit(trials)]
        for trial in trials:
            double = noted.is_double(trial, trials)
            if trial.state is not OptunaState.WAITING or not (double or trial.number in wanted):
                continue
            is_ours = False
            # Another controller may be faster.
            with contextlib.suppress(UpdateFinishedTrialError):
                trial_id = self.trial_id(trial.number)
                is_ours = self.storage.set_trial_state_values(trial_id, OptunaState.RUNNING)
            if is_ours and not double:
                return trial.number
            if is_ours:
                self._give_up(trial, noted.SURPLUS, "queued twice")
        return None

    def _limit(self, trials: Sequence[FrozenTrial]) -> int:
        if self.grid is None:
            return self.hpo.n_trials
        # A point of the grid that is no configuration has been tried too.
        invalid = [t for t in trials if t.user_attrs.get(noted.KIND) == noted.INVALID]
        size = math.prod(map(len, self.grid.values()))
        return min(self.hpo.n_trials, max(size - len(invalid), 0))

    def start_heartbeats(self, trial: FrozenTrial, *, renew: bool) -> None:
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
                self.storage.set_trial_user_attr(trial_id, noted.BEATS, True)

    def _give_up(self, trial: FrozenTrial, kind: str, reason: str) -> None:
        attributes = {noted.KIND: kind, noted.REASON: reason}
        self.finish(trial.number, OptunaState.FAIL, attributes)


def successor_of(trial: FrozenTrial, counts: bool) -> FrozenTrial:
    """Return a waiting trial that goes on where a lost attempt, which may count, has ended."""
    system = {
        key: value
        for key, value in trial.system_attrs.items()
        if not key.startswith(_NOT_INHERITED) and ":optimizer" not in key
    }
    # What it was to begin with may not all have been drawn.
    system[_FIXED] = {**trial.system_attrs.get(_FIXED, {}), **trial.params}
    user: dict[str, Any] = {
        noted.RETRY_OF: trial.number,
        noted.ROOT: noted.root_of(trial),
        noted.FOLDER: noted.folder_of(trial),
        noted.ATTEMPT: noted.losses_of(trial) + int(counts),
    }
    inherited = trial.user_attrs.get(noted.OVERRIDES)
    if inherited is not None:
        user[noted.OVERRIDES] = inherited
    return optuna.create_trial(
        state=OptunaState.WAITING,
        user_attrs=user,
        system_attrs=system,
        intermediate_values=dict(trial.intermediate_values),
    )


def _with_ticket(trials: Sequence[FrozenTrial], ticket: str) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.user_attrs.get(noted.TICKET) == ticket]


def _is_unsigned(trial: FrozenTrial) -> bool:
    """Return whether a controller died between claiming a trial of a journal and signing it."""
    if trial.user_attrs.get(noted.OWNER) or trial.datetime_start is None:
        return False
    return (datetime.now() - trial.datetime_start).total_seconds() > _UNSIGNED_S
