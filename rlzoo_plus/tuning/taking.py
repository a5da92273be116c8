"""Takes trials from a study that others take from at the same time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from rlzoo_plus.tuning import attributes as noted
from rlzoo_plus.tuning.orphans import give_up


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
        running = [trial for trial in mine if trial.state is TrialState.RUNNING]
        return self._keep_first(running, trials)

    def enqueue(self, params: Mapping[str, Any], attributes: Mapping[str, Any]) -> bool:
        """Queue the study's first trial, if there is none yet."""
        # Two who find the study empty both queue one; whoever takes the second one drops it.
        if self.trials():
            return False
        user = {**attributes, noted.WARM: True}
        system = {"fixed_params": dict(params)}
        self.add(create_trial(state=TrialState.WAITING, user_attrs=user, system_attrs=system))
        return True

    def add(self, trial: FrozenTrial) -> None:
        """Add a trial."""
        self._storage.create_new_trial(self._study_id, trial)

    def _make(self, owner: str, ticket: str) -> None:
        # Signed from the first moment on: whoever dies next leaves no trial without an owner.
        attributes = {noted.OWNER: owner, noted.TICKET: ticket}
        self.add(create_trial(state=TrialState.RUNNING, user_attrs=attributes))

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
            if trial.state is not TrialState.WAITING:
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
            return self._storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
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
