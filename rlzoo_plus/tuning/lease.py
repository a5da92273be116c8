"""The lease on a trial: claimed by one controller, kept alive, finished once, or taken over."""

from __future__ import annotations

import hashlib
import logging
import math
import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import FrozenTrial, create_trial
from optuna.trial import TrialState as OptunaState

from rlzoo_plus.artifacts.inside import OutsideError, check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.sweeps.presence import Presence, is_present
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.postgres import start_clocks
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    import optuna

    from rlzoo_plus.tuning.study import Study
    from rlzoo_plus.tuning.study_plan import StudyPlan


class Desk:
    """Hands out a study's trials: each to one controller, and not more than there may be."""

    def __init__(
        self, storage: BaseStorage, study_id: int, n_trials: int, grid_size: int | None
    ) -> None:
        """Prepare.

        Args:
            storage: The study's storage.
            study_id: The study in it.
            n_trials: The most trials.
            grid_size: Points of the grid that is searched, None for other searches.
        """
        self._storage, self._study_id = storage, study_id
        self._n_trials, self._grid_size = n_trials, grid_size

    def trials(self) -> list[FrozenTrial]:
        """Return all trials by number."""
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return sorted(trials, key=lambda trial: trial.number)

    def take(self, owner: str, ticket: str) -> int | None:
        """Return the number of a trial that is ours alone, None if there are enough.

        Args:
            owner: Who takes it.
            ticket: A name for this request: it can be repeated when its answer was lost.
        """
        trials = self.trials()
        mine = _with_ticket(trials, ticket)
        if not mine:
            waiting = self._take_waiting(trials)
            if waiting is not None:
                return waiting
            if len(noted.places(trials)) >= self._limit(trials):
                return None
            self._make(owner, ticket)
            trials = self.trials()
            mine = _with_ticket(trials, ticket)
        running = [trial for trial in mine if trial.state is OptunaState.RUNNING]
        return self._keep_first(running, trials)

    def enqueue(self, params: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
        """Queue the study's first trial, if there is none yet."""
        # Two who find the study empty both queue one; whoever takes the second one drops it.
        if self.trials():
            return False
        user = {**attributes, noted.WARM: True}
        system = {"fixed_params": dict(params)}
        self.add(create_trial(state=OptunaState.WAITING, user_attrs=user, system_attrs=system))
        return True

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial."""
        self._storage.create_new_trial(self._study_id, trial)

    def _make(self, owner: str, ticket: str) -> None:
        # Signed from the first moment on: whoever dies next leaves no trial without an owner.
        attributes = {noted.OWNER: owner, noted.TICKET: ticket}
        self.add(create_trial(state=OptunaState.RUNNING, user_attrs=attributes))

    def _keep_first(self, mine: Sequence[FrozenTrial], trials: Sequence[FrozenTrial]) -> int | None:
        # When the answer to making a trial is lost, Optuna makes another one.
        for double in mine[1:]:
            give_up(self._storage, double, noted.SURPLUS, "made twice")
        if not mine:
            return None
        if mine[0].number in noted.places(trials)[: self._limit(trials)]:
            return mine[0].number
        give_up(self._storage, mine[0], noted.SURPLUS, "one more than hpo.n_trials")
        return None

    def _take_waiting(self, trials: Sequence[FrozenTrial]) -> int | None:
        wanted = noted.places(trials)[: self._limit(trials)]
        for trial in trials:
            if trial.state is not OptunaState.WAITING:
                continue
            double = noted.is_double(trial, trials)
            if (double or trial.number in wanted) and self._begin(trial):
                if not double:
                    return trial.number
                give_up(self._storage, trial, noted.SURPLUS, "queued twice")
        return None

    def _begin(self, trial: FrozenTrial) -> bool:
        """Take a trial from the queue; return False if somebody else was faster."""
        try:
            return self._storage.set_trial_state_values(trial._trial_id, OptunaState.RUNNING)
        except UpdateFinishedTrialError:
            return False

    def _limit(self, trials: Sequence[FrozenTrial]) -> int:
        if self._grid_size is None:
            return self._n_trials
        # A point of the grid that is no configuration has been tried too.
        invalid = [t for t in trials if t.user_attrs.get(noted.KIND) == noted.INVALID]
        return min(self._n_trials, max(self._grid_size - len(invalid), 0))


def _with_ticket(trials: Sequence[FrozenTrial], ticket: str) -> list[FrozenTrial]:
    return [trial for trial in trials if trial.user_attrs.get(noted.TICKET) == ticket]


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


# How Optuna's own Trial.set_constraint names them.
_CONSTRAINT = "constraints:"


@dataclass(frozen=True)
class Ending:
    """How a trial ends.

    Attributes:
        state: COMPLETE, PRUNED or FAIL.
        values: The objectives' values of a complete trial.
        attributes: What is noted beside.
        violations: How much each constraint is broken, by its key.
    """

    state: OptunaState
    values: Sequence[float] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    violations: Mapping[str, float] = field(default_factory=dict)


def end_trial(storage: BaseStorage, trial_id: int, ending: Ending) -> bool:
    """End a trial; return False if it had ended otherwise before. Safe to be called again."""
    try:
        # Attributes first: a trial that has ended cannot be changed.
        for key, value in ending.attributes.items():
            storage.set_trial_user_attr(trial_id, key, value)
        for key, value in ending.violations.items():
            storage.set_trial_system_attr(trial_id, _CONSTRAINT + key, value)
        values = ending.values
        if ending.state is OptunaState.PRUNED:
            values = _last_reported(storage.get_trial(trial_id))
        return storage.set_trial_state_values(trial_id, ending.state, values)
    except UpdateFinishedTrialError:
        return _has_ended_so(storage.get_trial(trial_id), ending)


def _last_reported(trial: FrozenTrial) -> list[float] | None:
    """Return what Optuna takes for a pruned trial's value."""
    step = trial.last_step
    if step is None or not math.isfinite(trial.intermediate_values[step]):
        return None
    return [trial.intermediate_values[step]]


def _has_ended_so(trial: FrozenTrial, ending: Ending) -> bool:
    """Tell whether it was us who ended it: the server went away before it could answer."""
    if trial.state is not ending.state:
        return False
    if ending.values is not None and list(trial.values or ()) != list(ending.values):
        return False
    return all(trial.user_attrs.get(key) == value for key, value in ending.attributes.items())


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


log = logging.getLogger(__name__)
_OVER = (TrialState.DONE, TrialState.PRUNED, TrialState.FAILED)


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
