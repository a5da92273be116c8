"""Trials whose controller has died: each is given up once, and another attempt takes its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from rlzoo_plus.tuning import attributes as noted
from rlzoo_plus.tuning.postgres import start_clocks
from rlzoo_plus.tuning.trials import TrialState

if TYPE_CHECKING:
    import optuna

# Between taking a trial from the queue and signing it there are milliseconds.
_UNSIGNED_S = 60.0
_NOT_INHERITED = ("fixed_params", "constraints")

# That a controller dies is no fault of its trials, but one that takes each controller down with it,
# as by using up all memory, must end some time.
MOST_LOSSES = 10

IsDead = Callable[[str], bool | None]


def requeue(
    study: optuna.Study, rdb: RDBStorage | None, is_dead: IsDead, counts: bool
) -> list[int]:
    """Give up the trials of dead owners, and queue their successors; safe to be called again.

    Args:
        study: The study.
        rdb: Its database, None for a journal.
        is_dead: Tells of an owner whether it is dead, None if that is not known.
        counts: Whether a lost attempt is one of `MOST_LOSSES`.

    Returns:
        The numbers of the attempts that have a successor now.
    """
    storage, study_id = study._storage, study._study_id

    def read() -> list[FrozenTrial]:
        return storage.get_all_trials(study_id, deepcopy=False)

    for trial in find_orphans(study, rdb, read(), is_dead):
        attempts = attempt_of(trial)
        if counts and attempts >= MOST_LOSSES:
            reason = f"its controller was lost, {attempts + 1} times"
            give_up(storage, trial, noted.FAILED, reason)
        else:
            reason = "its controller was lost" if counts else "laid down by its controller"
            give_up(storage, trial, noted.REQUEUED, reason)
    lost = lost_attempts(read())
    for trial in lost:
        storage.create_new_trial(study_id, successor_of(trial, counts))
    return [trial.number for trial in lost]


def find_orphans(
    study: optuna.Study, rdb: RDBStorage | None, trials: Sequence[FrozenTrial], is_dead: IsDead
) -> list[FrozenTrial]:
    """Return the running trials whose owner is dead.

    Of an owner that cannot be seen from here, a database tells by its heartbeats. A journal has
    none: there an unknown owner counts as alive, since whoever can read the journal can see the
    owners' locks beside it.

    Args:
        study: The study.
        rdb: Its database, None for a journal.
        trials: All its trials.
        is_dead: Tells of an owner whether it is dead, None if that is not known.
    """
    running = [trial for trial in trials if trial.state is OptunaState.RUNNING]
    verdicts = {trial.number: _ask(is_dead, trial) for trial in running}
    unknown = [trial for trial in running if verdicts[trial.number] is None]
    stale: set[int] = set()
    if rdb is not None and unknown:
        start_clocks(rdb, [trial._trial_id for trial in unknown])
        stale = set(rdb._get_stale_trial_ids(study._study_id))
    for trial in unknown:
        silent = trial._trial_id in stale if rdb is not None else _is_unsigned(trial)
        verdicts[trial.number] = silent
    return [trial for trial in running if verdicts[trial.number]]


def give_up(storage: BaseStorage, trial: FrozenTrial, kind: str, reason: str) -> bool:
    """Fail a trial; return False if somebody else has ended it before."""
    try:
        storage.set_trial_user_attr(trial._trial_id, noted.KIND, kind)
        storage.set_trial_user_attr(trial._trial_id, noted.REASON, reason)
        return storage.set_trial_state_values(trial._trial_id, OptunaState.FAIL)
    except UpdateFinishedTrialError:
        return False


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
        # An optimizer's state is long, and a later trial has a newer one.
        if not key.startswith(_NOT_INHERITED) and ":optimizer" not in key
    }
    inherited = trial.user_attrs.get(noted.OVERRIDES)
    user: dict[str, Any] = {
        noted.RETRY_OF: trial.number,
        noted.ROOT: noted.root_of(trial),
        noted.FOLDER: noted.folder_of(trial),
        noted.ATTEMPT: attempt_of(trial) + int(counts),
        **({} if inherited is None else {noted.OVERRIDES: inherited}),
    }
    # What it was to begin with may not all have been drawn.
    params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
    return create_trial(
        state=OptunaState.WAITING,
        user_attrs=user,
        system_attrs={**system, "fixed_params": params},
        intermediate_values=dict(trial.intermediate_values),
    )


def attempt_of(trial: FrozenTrial) -> int:
    """Return how many attempts were lost before this one."""
    return noted.whole(trial, noted.ATTEMPT) or 0


def _ask(is_dead: IsDead, trial: FrozenTrial) -> bool | None:
    owner = trial.user_attrs.get(noted.OWNER)
    return is_dead(owner) if isinstance(owner, str) and owner else None


def _is_unsigned(trial: FrozenTrial) -> bool:
    """Tell whether somebody died between taking a trial of a journal and signing it."""
    if trial.user_attrs.get(noted.OWNER) or trial.datetime_start is None:
        return False
    return (datetime.now() - trial.datetime_start).total_seconds() > _UNSIGNED_S
