"""The job of a trial, in the process that trains: reports its course, and prunes it."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.tuning.metrics import RUNGS
from rlzoo_plus.tuning.postgres import patiently
from rlzoo_plus.tuning.storage import open_storage

if TYPE_CHECKING:
    import optuna

# Training is not kept waiting for longer.
_PATIENCE_S = 10.0
DIVERGED = "diverged"

_log = logging.getLogger(__name__)


class TrialReporter:
    """Reports one trial. What goes wrong with the storage never ends the training."""

    def __init__(
        self, storage_name: str, folder: str, study_name: str, number: int, hpo: dict[str, Any]
    ) -> None:
        """Prepare; nothing is opened before the first report.

        Args:
            storage_name: As in `hpo.storage`.
            folder: The study's directory.
            study_name: The study's name in the storage.
            number: The trial's number.
            hpo: The study's settings.
        """
        self.arguments: dict[str, Any] = {
            "storage_name": storage_name,
            "folder": folder,
            "study_name": study_name,
            "number": number,
            "hpo": hpo,
        }
        self._hpo = HpoConfig.model_validate(hpo)
        self._study: optuna.Study | None = None
        self._trial_id = -1
        self._is_closed = len(self._hpo.objectives) > 1
        self._patience_s = _PATIENCE_S

    def report(self, value: float, rung: int) -> str | None:
        """Report a value; return why the trial should end, None if it should go on.

        Args:
            value: What the trial is judged by.
            rung: Twentieths of a run, those of later seeds behind.
        """
        if not math.isfinite(value):
            return DIVERGED
        if self._is_closed:
            return None
        from optuna.exceptions import OptunaError

        try:
            reason = patiently(lambda: self._report(value, rung), self._patience_s)
        except (ConfigError, OptunaError, OSError, ValueError, LookupError) as error:
            _log.warning("the study was not told: %s; training goes on", one_line(error))
            # The next report tries once.
            self._study, self._patience_s = None, 0.0
            return None
        self._patience_s = _PATIENCE_S
        return None if reason is None else str(reason)

    def _report(self, value: float, rung: int) -> str | None:
        import optuna

        if self._study is None:
            self._study, self._trial_id = self._open()
        trial = optuna.trial.Trial(self._study, self._trial_id)
        known = self._study._storage.get_trial(self._trial_id)
        if known.state.is_finished():
            # Another controller has taken it up. This run's results may still be used there.
            _log.warning("trial %d has been closed; it goes on without pruning", known.number)
            self._is_closed = True
            return None
        if rung < (known.last_step or 0):
            return None
        if rung not in known.intermediate_values:
            trial.report(value, rung)
        if trial.should_prune():
            return f"{self._hpo.pruner} at rung {rung} of {RUNGS * self._hpo.seeds}: {value:.6g}"
        return None

    def _open(self) -> tuple[optuna.Study, int]:
        arguments = self.arguments
        storage = open_storage(
            arguments["storage_name"],
            Path(arguments["folder"]),
            self._hpo.heartbeat_s,
            create=False,
        )
        import optuna

        from rlzoo_plus.tuning.samplers import make_pruner

        study = optuna.load_study(
            study_name=arguments["study_name"],
            storage=storage,
            sampler=optuna.samplers.RandomSampler(),
            pruner=make_pruner(self._hpo, RUNGS * self._hpo.seeds),
        )
        number = arguments["number"]
        study_id = study._study_id
        return study, study._storage.get_trial_id_from_study_id_trial_number(study_id, number)
