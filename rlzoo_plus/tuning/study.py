"""A study in work: asking for trials, telling their outcome, and taking up lost ones."""

from __future__ import annotations

import copy
import json
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.schema import Direction, HpoConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.metrics import RUNGS, parse_constraints
from rlzoo_plus.tuning.postgres import is_gone, patiently
from rlzoo_plus.tuning.storage import open_storage
from rlzoo_plus.tuning.stored_study import ABOUT, PATIENCE_S, StoredStudy
from rlzoo_plus.tuning.trial_job import DIVERGED, TrialReporter

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage

    from rlzoo_plus.infra.launcher import Launcher
    from rlzoo_plus.tuning.lease import IsDead
    from rlzoo_plus.tuning.samplers import Grid
    from rlzoo_plus.tuning.study_plan import StudyPlan

PRELOAD = ("rlzoo_plus.preload", "rlzoo_plus.tuning.trial_job", "rlzoo_plus.tuning.study")

T = TypeVar("T")


@dataclass(frozen=True)
class AskedTrial:
    """A trial that is to be run.

    Attributes:
        trial: What the values are drawn from; those of a lost attempt are given again.
        number: Its number.
        folder: Its directory below the study's.
        retry_of: The lost attempt that it takes the place of, None if it is the first.
        attempt: How many attempts were lost before.
        overrides: What it changes, where that is known before anything is drawn: nothing for the
            first trial of a warm start, and what a lost attempt had changed.
    """

    trial: optuna.Trial
    number: int
    folder: str
    retry_of: int | None
    attempt: int
    overrides: tuple[str, ...] | None = None


class Study(StoredStudy):
    """A study that trials are asked of. Processes on many machines may have the same one."""

    def __init__(
        self,
        study: optuna.Study,
        storage: BaseStorage,
        folder: Path,
        hpo: HpoConfig,
        grid: Grid | None = None,
    ) -> None:
        from rlzoo_plus.tuning.lease import Leases

        super().__init__(study, storage, folder, hpo.storage)
        self.hpo = hpo
        self._constraints = parse_constraints(hpo.constraints)
        self._grid_size = None if grid is None else math.prod(map(len, grid.values()))
        self._leases = Leases(study, storage, hpo.n_trials, self._grid_size)

    @classmethod
    def open(
        cls,
        name: str,
        folder: Path,
        hpo: HpoConfig,
        about: Mapping[str, Any],
        grid: Grid | None = None,
    ) -> Study:
        """Make a study, or go on with it.

        Args:
            name: Its name in the storage.
            folder: Its directory.
            hpo: Its settings.
            about: What must stay the same for as long as it goes on; kept at its beginning.
            grid: The values of each parameter, for `hpo.sampler=grid`.

        Raises:
            ConfigError: A setting is wrong, the storage cannot be used, or the study was begun
                with something else.
        """
        storage = open_storage(hpo.storage, folder, hpo.heartbeat_s)
        import optuna

        from rlzoo_plus.tuning.samplers import TrialSampler, make_pruner

        sampler = TrialSampler(hpo, grid)
        make_pruner(hpo, RUNGS * hpo.seeds)
        parse_constraints(hpo.constraints)
        directions = list(hpo.objectives.values())
        # Their order is that of the values; a study keeps no names.
        about = {**about, "objectives": [[key, value] for key, value in hpo.objectives.items()]}
        # Pruning is decided where the training is; here a pruner would only hide trials.
        arguments: dict[str, Any] = {
            "storage": storage,
            "sampler": sampler,
            "pruner": optuna.pruners.NopPruner(),
        }
        created = patiently(lambda: create_study(name, storage, directions), PATIENCE_S)
        loaded = patiently(lambda: optuna.load_study(study_name=name, **arguments), PATIENCE_S)
        study = cls(loaded, storage, folder, hpo, grid)
        settle(study, about, created)
        return study

    def ask(self, owner: str) -> AskedTrial | None:
        """Take a trial: a lost attempt, what is queued, or a new one.

        Args:
            owner: Who takes it.

        Returns:
            None when all of `hpo.n_trials` are done or in somebody's hands. Those may yet come
            back: ask again for as long as trials are running.
        """
        ticket = uuid.uuid4().hex
        number = patiently(lambda: self._leases.claim(owner, ticket), PATIENCE_S)
        if number is None:
            return None
        asked: AskedTrial = patiently(lambda: self._claimed(number, owner), PATIENCE_S)
        return asked

    def draw(self, asked: AskedTrial, action: Callable[[optuna.Trial], T]) -> T:
        """Draw a trial's values, also while the storage is away for a moment.

        Args:
            asked: The trial.
            action: What draws from Optuna's trial. It may be called again, with a trial that
                knows what is in the storage already.
        """
        trials = [asked.trial]

        def attempt() -> T:
            trial = trials.pop() if trials else self._claimed(asked.number, "").trial
            return action(trial)

        result: T = patiently(attempt, PATIENCE_S)
        return result

    def set_overrides(self, number: int, overrides: Sequence[str]) -> bool:
        """Note what a trial changes; return False if it is no longer ours."""
        from optuna.exceptions import UpdateFinishedTrialError

        def note() -> bool:
            try:
                trial_id = self._leases.trial_id(number)
                self.storage.set_trial_user_attr(trial_id, noted.OVERRIDES, list(overrides))
            except UpdateFinishedTrialError:
                return False
            return True

        return bool(patiently(note, PATIENCE_S))

    def enqueue(self, params: Mapping[str, Any], **attributes: Any) -> bool:
        """Let the study begin with given values; only if it has no trials yet.

        Returns:
            Whether they were queued. A grid holds all that is to be tried, and takes none.
        """
        if self._grid_size is not None:
            return False
        return bool(patiently(lambda: self._leases.enqueue(params, attributes), PATIENCE_S))

    def done(self, number: int, values: Sequence[float], metrics: Mapping[str, float]) -> bool:
        """Tell a trial's values; return False if it was taken from us.

        Values that are no numbers prune the trial: the sampler learns from that.
        """
        if len(values) != len(self.hpo.objectives):
            raise ValueError(f"{len(values)} values for {len(self.hpo.objectives)} objectives")
        if not all(math.isfinite(value) for value in values):
            return self.prune(number, DIVERGED, metrics)
        return self._finish(number, "COMPLETE", {}, metrics, [float(value) for value in values])

    def prune(self, number: int, reason: str, metrics: Mapping[str, float] | None = None) -> bool:
        """Tell that a trial was ended early; return False if it was taken from us."""
        return self._finish(number, "PRUNED", {noted.REASON: reason}, metrics or {})

    def fail(self, number: int, reason: str) -> bool:
        """Tell that a trial failed; return False if it was taken from us."""
        return self._finish(number, "FAIL", {noted.KIND: noted.FAILED, noted.REASON: reason})

    def invalid(self, number: int, reason: str) -> bool:
        """Tell that a draw was no configuration; it does not count as one of the trials."""
        return self._finish(number, "FAIL", {noted.KIND: noted.INVALID, noted.REASON: reason})

    def beat(self, numbers: Sequence[int]) -> None:
        """Say that our trials are in work; a journal needs no such thing."""
        from optuna.exceptions import StorageInternalError

        try:
            self._leases.beat(numbers)
        except StorageInternalError as error:
            # The next beat will do; the clock that counts stands still with the server.
            if not is_gone(error):
                raise

    def requeue_orphans(self, is_dead: IsDead, counts: bool = True) -> list[int]:
        """Queue another attempt for each trial whose owner is dead.

        Args:
            is_dead: Tells of an owner whether it is dead, None if that cannot be seen from here.
            counts: Whether it was lost; False when the owner itself lays its trials down.

        Returns:
            The numbers of the attempts that were taken up.
        """
        return list(patiently(lambda: self._leases.retry_lost(is_dead, counts), PATIENCE_S))

    def reporter(self, number: int) -> TrialReporter | None:
        """Return what reports a trial's course, None if nothing can be pruned."""
        if len(self.hpo.objectives) > 1 or self.hpo.pruner == "none":
            return None
        hpo = self.hpo.model_dump(mode="json")
        return TrialReporter(self.storage_name, str(self.folder), self.name, number, hpo)

    def _claimed(self, number: int, owner: str) -> AskedTrial:
        import optuna

        frozen = self._leases.sign(number, owner)
        # A copy for each trial, of the same storage: samplers remember in it what they have seen.
        study = copy.copy(self.optuna_study)
        return AskedTrial(
            trial=optuna.trial.Trial(study, self._leases.trial_id(number)),
            number=number,
            folder=noted.folder_of(frozen),
            retry_of=noted.whole(frozen, noted.RETRY_OF),
            attempt=noted.losses_of(frozen),
            overrides=noted.known_overrides(frozen),
        )

    def _finish(
        self,
        number: int,
        state: str,
        attributes: Mapping[str, Any],
        metrics: Mapping[str, float] | None = None,
        values: Sequence[float] | None = None,
    ) -> bool:
        finite = {name: float(v) for name, v in (metrics or {}).items() if math.isfinite(v)}
        is_measured = bool(finite) or state == "COMPLETE"
        if finite:
            attributes = {**attributes, noted.METRICS: finite}
        violations = {c.key: c.violation(finite) for c in self._constraints if is_measured}
        finish = self._leases.finish
        return bool(
            patiently(lambda: finish(number, state, values, attributes, violations), PATIENCE_S)
        )


# Whoever makes a study says at once what it is about.
_ABOUT_PATIENCE_S = 5.0


def begin_study(plan: StudyPlan, arguments: list[str]) -> tuple[Study, Launcher, list[str]]:
    """Check what can be checked before anything is written, and open the study.

    Returns:
        The study, where its trials run, and what the user should know.

    Raises:
        ConfigError: Something in the plan is wrong, or the study cannot be opened.
    """
    from rlzoo_plus.config.compose import config_options
    from rlzoo_plus.infra.launcher import make_launcher
    from rlzoo_plus.sweeps.job import busy_cores
    from rlzoo_plus.tuning.experiment_file import check_target
    from rlzoo_plus.tuning.stored_study import write_study_file
    from rlzoo_plus.tuning.study_plan import about_study, check_draws, study_mistakes

    mistakes = study_mistakes(plan)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    check_target(plan, arguments)
    check_draws(plan)
    # Its processes import torch while the study is opened.
    launcher = make_launcher(plan.base.infra, busy_cores(plan.base), PRELOAD)
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"hpo.study={plan.folder} cannot be made: {error}") from error
    study = Study.open(plan.name, plan.folder, plan.hpo, about_study(plan), grid=plan.grid())
    write_study_file(plan, config_options(arguments))
    return study, launcher, _warm_start(plan, study)


def _warm_start(plan: StudyPlan, study: Study) -> list[str]:
    """Let the first trial take the values that `train` takes; return what it could not keep."""
    if not plan.hpo.warm_start or plan.hpo.sampler == "grid":
        return []
    params, notes = plan.space.encode(plan.fixed_values)
    if not params or not study.enqueue(params):
        return []
    # The trial itself is exactly what `train` takes.
    return [f"first trial, to the sampler: {note}" for note in notes]


def create_study(name: str, storage: BaseStorage, directions: Sequence[Direction]) -> bool:
    """Make a study; return False if there is one of that name."""
    import optuna

    try:
        optuna.create_study(study_name=name, storage=storage, directions=list(directions))
    except optuna.exceptions.DuplicatedStudyError:
        return False
    return True


def settle(study: StoredStudy, about: Mapping[str, Any], created: bool) -> None:
    """Say what a study is about, or see whether it is about the same.

    Args:
        study: The study.
        about: What must stay the same for as long as it goes on.
        created: Whether we have made it, and so are the one to say it.

    Raises:
        ConfigError: It is about something else.
    """
    # As a storage gives it back.
    wanted = json.loads(json.dumps(dict(about)))
    end = time.monotonic() + _ABOUT_PATIENCE_S
    while not created and not _is_said(study) and time.monotonic() < end:
        time.sleep(0.05)
    # Whoever made it may have died before it could say so.
    if created or not _is_said(study):
        patiently(lambda: study.optuna_study.set_user_attr(ABOUT, wanted), PATIENCE_S)
    differences = _differing(study.about, wanted)
    if differences:
        raise ConfigError(
            f"the study {study.name!r} was begun with {'; '.join(differences)}. "
            "Go on with what it was begun with, or take hpo.study=NAME for a new one."
        )


def _is_said(study: StoredStudy) -> bool:
    return bool(patiently(lambda: ABOUT in study.optuna_study.user_attrs, PATIENCE_S))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    return [
        "{}={}, not {}".format(key, *_only_different(old.get(key), new.get(key)))
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    ]


def _only_different(old: Any, new: Any) -> tuple[str, str]:
    """Show two values; of two lists only what the other one has not, unless that is nothing."""
    if isinstance(old, list) and isinstance(new, list):
        mine, yours = [x for x in old if x not in new], [x for x in new if x not in old]
        if mine or yours:
            old, new = mine, yours
    return _short(old), _short(new)


def _short(value: Any) -> str:
    return printable(json.dumps(value), 120)
