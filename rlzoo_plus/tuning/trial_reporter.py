"""What a trial's run reports to its study while it trains, and whether it is to end early."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.tuning.objectives import RUNGS, followed_value, rung_of, rung_values
from rlzoo_plus.tuning.samplers import make_pruner
from rlzoo_plus.tuning.storage import patiently
from rlzoo_plus.tuning.stored_study import StoredStudy
from rlzoo_plus.tuning.with_optuna import optuna

if TYPE_CHECKING:
    from rlzoo_plus.runs.train_job import Watcher
    from rlzoo_plus.training.callbacks.base import StopRequest

# Training does not wait longer for a storage.
_PATIENCE_S = 10.0
DIVERGED = "diverged"

# A `ConfigError` is a `ValueError`.
_NOT_UPDATED = (optuna.exceptions.OptunaError, OSError, ValueError, LookupError)
_log = logging.getLogger(__name__)


def follow(report: dict[str, Any], n_timesteps: int) -> Watcher | None:
    """Return what is called with each evaluation of a trial's run.

    Args:
        report: `metric`, what is reported, None for nothing; `seed_index`; `earlier`, the
            directories of the trial's earlier runs; `trial`, the arguments of a `TrialReporter`.
        n_timesteps: Length of the run.
    """
    metric = report["metric"]
    if metric is None:
        return None
    reporter = TrialReporter(**report["trial"])
    earlier = [rung_values(RunDir(Path(p)), n_timesteps, metric) for p in report["earlier"]]

    def watch(record: Mapping[str, Any], stop: StopRequest) -> None:
        value = followed_value(record, metric)
        if value is None or record["step"] == 0:
            # `eval.at_start` is no rung: the first one counts from the first training.
            return
        rung = rung_of(record["step"], n_timesteps)
        values = [value, *(run[rung] for run in earlier if rung in run)]
        behind = RUNGS * report["seed_index"]
        reason = reporter.report(sum(values) / len(values), behind + rung)
        if reason is None and not math.isfinite(value):
            reason = f"diverged: {metric} is {value}"
        if reason is not None and record["step"] < n_timesteps:
            stop.reason = reason

    return watch


@dataclass
class TrialReporter:
    """Reports one trial. Errors of the storage never end the training.

    Nothing is opened before the first report.
    """

    storage_name: str
    folder: str
    study_name: str
    number: int
    hpo: dict[str, Any]

    def __post_init__(self) -> None:
        self._hpo = HpoConfig.model_validate(self.hpo)
        self._study: optuna.Study | None = None
        self._trial_id = -1
        self._is_closed = len(self._hpo.objectives) > 1
        self._patience_s = _PATIENCE_S

    def report(self, value: float, rung: int) -> str | None:
        """Report the value at a rung; return why the trial should end, None if it should go on."""
        if not math.isfinite(value):
            return DIVERGED
        if self._is_closed:
            return None
        try:
            reason = patiently(lambda: self._report(value, rung), self._patience_s)
        except _NOT_UPDATED as error:
            _log.warning("the study could not be updated: %s; training continues", one_line(error))
            # The next report tries once.
            self._study, self._patience_s = None, 0.0
            return None
        self._patience_s = _PATIENCE_S
        return reason

    def _report(self, value: float, rung: int) -> str | None:
        if self._study is None:
            stored = StoredStudy.read(self.study_name, Path(self.folder), self.storage_name)
            stored.optuna_study.pruner = make_pruner(self._hpo, RUNGS * self._hpo.seeds)
            self._trial_id, self._study = stored.trial_id(self.number), stored.optuna_study
        trial = optuna.trial.Trial(self._study, self._trial_id)
        known = trial.storage.get_trial(self._trial_id)
        if known.state.is_finished():
            # Another controller has taken it up. This run's results may still be used there.
            _log.warning("trial %d was closed; training continues without pruning", known.number)
            self._is_closed = True
            return None
        if rung < (known.last_step or 0):
            return None
        if rung not in known.intermediate_values:
            trial.report(value, rung)
        if trial.should_prune():
            return f"{self._hpo.pruner} at rung {rung} of {RUNGS * self._hpo.seeds}: {value:.6g}"
        return None
