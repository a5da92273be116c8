"""A study at work: opening it, asking for trials, and recording how they ended."""

from __future__ import annotations

import copy
import json
import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.overrides import config_options
from rlzoo_plus.config.schema import Direction, HpoConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import remember_store
from rlzoo_plus.sweeps.launchers.launcher import Launcher, make_launcher
from rlzoo_plus.sweeps.launchers.workers import WorkersLauncher
from rlzoo_plus.sweeps.submitting import worker_command
from rlzoo_plus.sweeps.sweep_job import busy_cores
from rlzoo_plus.tuning import trials as noted
from rlzoo_plus.tuning.experiment_file import check_target
from rlzoo_plus.tuning.samplers import Grid, make_sampler
from rlzoo_plus.tuning.storage import open_storage, patient, patiently
from rlzoo_plus.tuning.stored_study import ABOUT, FORMAT, StoredStudy
from rlzoo_plus.tuning.study_folder import NAME
from rlzoo_plus.tuning.study_plan import StudyPlan, about_study, check_draws, study_mistakes
from rlzoo_plus.tuning.trial_job import PRELOAD
from rlzoo_plus.tuning.trial_lease import Leases
from rlzoo_plus.tuning.trial_reporter import DIVERGED, TrialReporter
from rlzoo_plus.tuning.with_optuna import OptunaState, optuna

T = TypeVar("T")


@dataclass(frozen=True)
class AskedTrial:
    """A trial that is to be run."""

    trial: optuna.Trial  # Suggests the values; those of a lost attempt again
    number: int
    folder: str  # Below the study's
    retry_of: int | None  # The lost attempt that it replaces, None if it is the first
    attempt: int  # How many attempts were lost before
    overrides: tuple[str, ...] | None = None  # None if they are to be drawn


class Study(Leases):
    """A study that trials are asked of. Processes on many machines may have the same one."""

    @classmethod
    def open(
        cls,
        name: str,
        folder: Path,
        hpo: HpoConfig,
        about: Mapping[str, Any],
        grid: Grid | None = None,
    ) -> Study:
        """Create a study, or continue it.

        `about` is what must stay the same for as long as it goes on, `grid` has the values of each
        parameter, for `hpo.sampler=grid`.
        """
        storage = open_storage(hpo.storage, folder, hpo.heartbeat_s)
        # Their order is that of the values; a study stores no names.
        about = {**about, "objectives": [[key, value] for key, value in hpo.objectives.items()]}
        created = patiently(lambda: create_study(name, storage, list(hpo.objectives.values())))
        # Each trial has a sampler of its own. Pruning is decided in the process that trains; here
        # a pruner would only hide trials.
        sampler, pruner = optuna.samplers.RandomSampler(), optuna.pruners.NopPruner()
        loaded = patiently(
            lambda: optuna.load_study(
                study_name=name, storage=storage, sampler=sampler, pruner=pruner
            )
        )
        study = cls(loaded, storage, folder, hpo, grid)
        settle(study, about, created)
        return study

    def ask(self, owner: str) -> AskedTrial | None:
        """Take a trial: a lost attempt, what is queued, or a new one.

        Returns:
            None when all of `hpo.n_trials` have ended or have an owner. Lost ones may yet come
            back: ask again for as long as trials are running.
        """
        number = self.claim(owner, uuid.uuid4().hex)
        return None if number is None else self._claimed(number, owner)

    def draw(self, asked: AskedTrial, action: Callable[[optuna.Trial], T]) -> T:
        """Draw a trial's values, also while the storage is away for a moment.

        The action may be called again, with a trial that knows what is in the storage already.
        """
        first = iter([asked.trial])
        return patiently(lambda: action(next(first, None) or self._claimed(asked.number, "").trial))

    @patient
    def set_overrides(self, number: int, overrides: Sequence[str]) -> bool:
        """Store what a trial changes; return False if it is no longer ours."""
        try:
            trial_id = self.trial_id(number)
            self.storage.set_trial_user_attr(trial_id, noted.OVERRIDES, list(overrides))
        except optuna.exceptions.UpdateFinishedTrialError:
            return False
        return True

    def done(self, number: int, values: Sequence[float], metrics: Mapping[str, float]) -> bool:
        """Record a trial's values; return False if it was taken from us.

        Values that are not finite prune the trial: the sampler learns from that.
        """
        if len(values) != len(self.hpo.objectives):
            raise ValueError(f"{len(values)} values for {len(self.hpo.objectives)} objectives")
        if not all(math.isfinite(value) for value in values):
            return self.prune(number, DIVERGED, metrics)
        return self.finish(number, OptunaState.COMPLETE, {}, metrics, list(map(float, values)))

    def prune(self, number: int, reason: str, metrics: Mapping[str, float] | None = None) -> bool:
        """Record that a trial was ended early; return False if it was taken from us."""
        return self.finish(number, OptunaState.PRUNED, {noted.REASON: reason}, metrics)

    def fail(self, number: int, reason: str) -> bool:
        """Record that a trial failed; return False if it was taken from us."""
        attributes = {noted.KIND: noted.FAILED, noted.REASON: reason}
        return self.finish(number, OptunaState.FAIL, attributes)

    def invalid(self, number: int, reason: str) -> bool:
        """Record that a draw was no configuration; it does not count as one of the trials."""
        attributes = {noted.KIND: noted.INVALID, noted.REASON: reason}
        return self.finish(number, OptunaState.FAIL, attributes)

    def reporter(self, number: int) -> TrialReporter | None:
        """Return what reports a trial's evaluations, None if nothing can be pruned."""
        if len(self.hpo.objectives) > 1 or self.hpo.pruner == "none":
            return None
        hpo = self.hpo.model_dump(mode="json")
        return TrialReporter(self.storage_name, str(self.folder), self.name, number, hpo)

    @patient
    def _claimed(self, number: int, owner: str) -> AskedTrial:
        trial_id = self.trial_id(number)
        frozen = self.storage.get_trial(trial_id)
        if owner and frozen.user_attrs.get(noted.OWNER) != owner:
            self.storage.set_trial_user_attr(trial_id, noted.OWNER, owner)
        self.start_heartbeats(frozen, renew=True)
        # A copy for each trial, of the same storage, with a sampler whose seed is made of the
        # trial's number: a study that goes on does not draw the same points again, and one with a
        # single worker draws the same ones each time, killed or not.
        study = copy.copy(self.optuna_study)
        number_of_draw = noted.undisturbed_number(frozen, self.frozen_trials())
        study.sampler = make_sampler(self.hpo, number_of_draw, self.grid)
        return AskedTrial(
            trial=optuna.trial.Trial(study, trial_id),
            number=number,
            folder=noted.folder_of(frozen),
            retry_of=noted.whole(frozen, noted.RETRY_OF),
            attempt=noted.losses_of(frozen),
            overrides=noted.known_overrides(frozen),
        )


# The process that creates a study stores at once what it is about.
_ABOUT_PATIENCE_S = 5.0


def begin_study(plan: StudyPlan, arguments: list[str]) -> tuple[Study, Launcher, list[str]]:
    """Check what can be checked before anything is written, and open the study.

    Returns:
        The study, the launcher of its trials, and what the user should know.
    """
    mistakes = study_mistakes(plan)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    check_target(plan, arguments)
    check_draws(plan)
    # Its processes import torch while the study is opened.
    launcher = make_launcher(
        plan.base.infra, busy_cores(plan.base), PRELOAD, store=plan.base.store, sweep=plan.name
    )
    try:
        plan.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"hpo.study={plan.folder} cannot be made: {error}") from error
    study = Study.open(plan.name, plan.folder, plan.hpo, about_study(plan), grid=plan.grid())
    content = {
        "format": FORMAT,
        "name": plan.name,
        "storage": plan.hpo.storage,
        "hpo": plan.hpo.model_dump(mode="json"),
        "base": list(plan.fixed),
        "config_options": list(config_options(arguments)),
    }
    write_json(plan.folder / NAME, content)
    notes = _of_workers(launcher, plan, study) if isinstance(launcher, WorkersLauncher) else []
    if plan.hpo.warm_start and plan.hpo.sampler != "grid":
        # The first trial is exactly what `train` takes; its parameters are the nearest ones.
        params, unlike = plan.space.encode(plan.fixed_values)
        if params and study.enqueue(params):
            notes += [f"first trial, to the sampler: {note}" for note in unlike]
    return study, launcher, notes


def _of_workers(launcher: WorkersLauncher, plan: StudyPlan, study: Study) -> list[str]:
    """Return what the user should know of a study whose runs go to a store."""
    launcher.prepare_study(plan.base)
    if not study.trials() and launcher.submitter.keys():
        raise ConfigError(
            f"{launcher.place} has jobs of another sweep or study of that name. Choose another "
            "one: hpo.study=NAME."
        )
    launcher.submitter.begin()
    remember_store(plan.folder, launcher.place)
    if launcher.starts_machines:
        return []
    return [f"a worker, on any machine: {worker_command(launcher, [plan.base])} --stay"]


def create_study(
    name: str, storage: optuna.storages.BaseStorage, directions: Sequence[Direction]
) -> bool:
    """Create a study; return False if there is one of that name."""
    try:
        optuna.create_study(study_name=name, storage=storage, directions=list(directions))
    except optuna.exceptions.DuplicatedStudyError:
        return False
    return True


def settle(study: StoredStudy, about: Mapping[str, Any], created: bool) -> None:
    """Store what a study is about if we have created it, or check that it is about the same."""

    def is_stored() -> bool:
        return patiently(lambda: ABOUT in study.optuna_study.user_attrs)

    # As a storage returns it.
    wanted = json.loads(json.dumps(dict(about)))
    end = time.monotonic() + _ABOUT_PATIENCE_S
    while not created and not is_stored() and time.monotonic() < end:
        time.sleep(0.05)
    # The process that created it may have died before it could store that.
    if created or not is_stored():
        patiently(lambda: study.optuna_study.set_user_attr(ABOUT, wanted))
    old = study.about
    differences = [
        _difference(key, old.get(key), wanted.get(key))
        for key in sorted({*old, *wanted})
        if old.get(key) != wanted.get(key)
    ]
    if differences:
        raise ConfigError(
            f"the study {study.name!r} was begun with {'; '.join(differences)}. "
            "Go on with what it was begun with, or take hpo.study=NAME for a new one."
        )


def _difference(key: str, old: Any, new: Any) -> str:
    """Describe a change; of two lists only what the other one has not, unless that is nothing."""
    if isinstance(old, list) and isinstance(new, list):
        mine, yours = [x for x in old if x not in new], [x for x in new if x not in old]
        if mine or yours:
            old, new = mine, yours
    before, now = (printable(json.dumps(value), 120) for value in (old, new))
    return f"{key}={before}, not {now}"
