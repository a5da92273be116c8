"""A study as its storage holds it: to be looked at, without changing anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.tuning.attributes import view_of
from rlzoo_plus.tuning.postgres import patiently
from rlzoo_plus.tuning.storage import JOURNAL_STORAGE, check_storage, open_storage
from rlzoo_plus.tuning.trials import TrialState, TrialView

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

ABOUT = "about"
# For so long a server may be away before a command gives up [s].
PATIENCE_S = 60.0


class StoredStudy:
    """A study that can be read."""

    def __init__(self, study: optuna.Study, folder: Path, storage_name: str) -> None:
        self.folder, self.storage_name = folder, check_storage(storage_name)
        self._study = study
        # Optuna wraps the storage that it is given, and has no other way to the wrapped one.
        self._storage = study._storage
        self._study_id = study._study_id

    @classmethod
    def read(cls, name: str, folder: Path, storage_name: str) -> StoredStudy:
        """Open a study that exists.

        Args:
            name: Its name in the storage.
            folder: Its directory.
            storage_name: As in `hpo.storage`.

        Raises:
            ConfigError: There is none, or its storage cannot be used.
        """
        storage = open_storage(storage_name, folder, heartbeat_s=30, create=False)
        import optuna

        try:
            study = optuna.load_study(
                study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler()
            )
        except KeyError:
            raise ConfigError(
                f"there is no study {printable(name)!r} in {check_storage(storage_name)} "
                f"(study directory {folder})."
            ) from None
        return StoredStudy(study, folder, storage_name)

    @property
    def name(self) -> str:
        """Its name in the storage."""
        return str(self._study.study_name)

    @property
    def optuna_study(self) -> optuna.Study:
        """The study for Optuna's own functions."""
        return self._study

    @property
    def storage(self) -> str:
        """Where it is kept, for people."""
        if self.storage_name == JOURNAL_STORAGE:
            return str(self.folder / "journal.log")
        return printable(self.storage_name)

    @property
    def about(self) -> dict[str, Any]:
        """What was fixed when it began."""
        value = patiently(lambda: self._study.user_attrs.get(ABOUT), PATIENCE_S)
        return value if isinstance(value, dict) else {}

    @property
    def directions(self) -> tuple[str, ...]:
        """Whether each objective is to be made large or small: `maximize`, `minimize`."""
        return tuple(direction.name.lower() for direction in self._study.directions)

    def trials(self) -> list[TrialView]:
        """Return all trials by number."""
        return [view_of(trial) for trial in patiently(self._all, PATIENCE_S)]

    def best(self, count: int) -> list[TrialView]:
        """Return the best trials that are done and keep all constraints, best first.

        With several objectives these are the trials that no other beats in all of them, in the
        order of the first one.
        """
        signs = [1.0 if direction == "maximize" else -1.0 for direction in self.directions]
        done = [
            (tuple(sign * value for sign, value in zip(signs, view.values, strict=True)), view)
            for view in self.trials()
            if view.state is TrialState.DONE
            and view.is_feasible
            and view.values is not None
            and len(view.values) == len(signs)
        ]
        if len(signs) > 1:
            done = [pair for pair in done if not any(_beats(other, pair[0]) for other, _ in done)]
        done.sort(key=lambda pair: (-pair[0][0], pair[1].number))
        return [view for _, view in done[:count]]

    def _all(self) -> list[FrozenTrial]:
        trials = self._storage.get_all_trials(self._study_id, deepcopy=False)
        return sorted(trials, key=lambda trial: trial.number)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)
