"""A study that exists: study.json, its trials, and the command line of one of them."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    LONGEST_LINE,
    one_line,
    parse_json,
    printable,
    read_json,
    read_plain_file,
)
from rlzoo_plus.config.own_code import refuse_foreign
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.errors import ConfigError, closest
from rlzoo_plus.tuning.storage import (
    JOURNAL_STORAGE,
    check_storage,
    driver_url,
    foreign_host,
    open_storage,
    patiently,
)
from rlzoo_plus.tuning.study_folder import JOURNAL, NAME, REPORTS, STUDIES, study_folder
from rlzoo_plus.tuning.study_report import Retrained, stored_retrained
from rlzoo_plus.tuning.trials import TrialState, TrialView, key_of, view_of
from rlzoo_plus.tuning.with_optuna import FrozenTrial, OptunaState, optuna

ABOUT = "about"


class StoredStudy:
    """A study that can be read."""

    def __init__(
        self,
        study: optuna.Study,
        storage: optuna.storages.BaseStorage,
        folder: Path,
        storage_name: str,
    ) -> None:
        self.optuna_study, self.storage = study, storage
        self.folder, self.storage_name = folder, check_storage(storage_name)

    @classmethod
    def read(cls, name: str, folder: Path, storage_name: str) -> StoredStudy:
        """Open a study by its name in the storage, which is as in `hpo.storage`."""
        storage = open_storage(storage_name, folder, heartbeat_s=30, create=False)
        try:
            study = optuna.load_study(
                study_name=name, storage=storage, sampler=optuna.samplers.RandomSampler()
            )
        except KeyError:
            raise ConfigError(
                f"there is no study {printable(name)!r} in {check_storage(storage_name)} "
                f"(study directory {folder})."
            ) from None
        return StoredStudy(study, storage, folder, storage_name)

    @property
    def name(self) -> str:
        """Its name in the storage."""
        return str(self.optuna_study.study_name)

    def trial_id(self, number: int) -> int:
        """Return the storage's id of a trial."""
        return self.storage.get_trial_id_from_study_id_trial_number(self._study_id, number)

    @cached_property
    def _study_id(self) -> int:
        return self.storage.get_study_id_from_name(self.name)

    @property
    def about(self) -> dict[str, Any]:
        """What was fixed when it began."""
        value = patiently(lambda: self.optuna_study.user_attrs.get(ABOUT))
        return value if isinstance(value, dict) else {}

    @property
    def directions(self) -> tuple[str, ...]:
        """The direction of each objective: `maximize` or `minimize`."""
        return tuple(direction.name.lower() for direction in self.optuna_study.directions)

    def frozen_trials(self) -> list[FrozenTrial]:
        """Return all trials as Optuna has them, by number."""
        found = patiently(lambda: self.optuna_study.get_trials(deepcopy=False))
        return sorted(found, key=lambda trial: trial.number)

    def trials(self) -> list[TrialView]:
        """Return all trials by number."""
        return [view_of(trial) for trial in self.frozen_trials()]

    def best(self, count: int) -> list[TrialView]:
        """Return the best trials that are done and keep all constraints, best first.

        With several objectives these are the trials that no other beats in all of them, in the
        order of the first one.
        """
        return best_of(self.trials(), self.directions, count)


def best_of(views: Sequence[TrialView], directions: Sequence[str], count: int) -> list[TrialView]:
    """Return the best of some trials, as `StoredStudy.best` says."""
    signs = [1.0 if direction == "maximize" else -1.0 for direction in directions]
    kept = [v for v in views if v.state is TrialState.DONE and v.is_feasible]
    done = [
        (tuple(sign * value for sign, value in zip(signs, view.values, strict=True)), view)
        for view in kept
        if view.values is not None and len(view.values) == len(signs)
    ]
    if len(signs) > 1:
        points = {values for values, _ in done}
        beaten = {
            values
            for values in points
            if any(all(map(float.__ge__, other, values)) for other in points - {values})
        }
        done = [pair for pair in done if pair[0] not in beaten]
    done.sort(key=lambda pair: (-pair[0][0], pair[1].number))
    return [view for _, view in done[:count]]


FORMAT = 1
# With fewer, the answer is the luck of the draw.
FEWEST_TRIALS = 4
_ENOUGH_TRIALS = 30
# Each is a column of a table.
_MOST_OBJECTIVES = 20
_Text = Annotated[str, Field(min_length=1)]


@dataclasses.dataclass(frozen=True)
class Published:
    """What the report of a study found."""

    winner: int | None = None  # The trial to use
    experiment: str | None = None  # The winner's, as `experiment=<name>` takes it
    retrained: dict[int, Retrained] = dataclasses.field(default_factory=dict)  # By trial


@dataclass(frozen=True)
class KnownStudy:
    """A study that exists, as its study.json describes it."""

    folder: Path
    name: _Text  # Also in its storage
    storage: _Text  # `journal`, or the URL of a database, without a password
    hpo: HpoConfig  # The settings of the command that began it
    base: tuple[str, ...] = ()  # The overrides that hold for every trial
    config_options: tuple[str, ...] = ()  # Where configuration files are
    trust: bool = False  # Whether its database may be on another machine

    @cached_property
    def study(self) -> StoredStudy:
        """The trials; a ConfigError if they cannot be read or must not be asked for."""
        host = None
        if self.storage != JOURNAL_STORAGE and not self.trust:
            # It is not asked where an untrusted study wants it: the password would go with it.
            host = foreign_host(self.storage)
        if host is not None:
            raise ConfigError(
                f"{self.folder / NAME} keeps its trials in a database on another machine, "
                f"{printable(host)}, which would receive your user and PGPASSWORD. If you know "
                "where the study comes from, add --trust."
            )
        study = StoredStudy.read(self.name, self.folder, self.storage)
        try:
            # Optuna does not check what it reads.
            study.trials()
        except ConfigError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ConfigError(
                f"{printable(self.place)} is damaged: it has an invalid trial ({one_line(error)})."
            ) from error
        if len(study.directions) != len(self.hpo.objectives):
            raise ConfigError(
                f"{self.folder / NAME} has {len(self.hpo.objectives)} objectives, but the trials "
                f"in {printable(self.place)} are of a study with {len(study.directions)}."
            )
        return study

    @property
    def place(self) -> str:
        """Where the trials are stored: the path of the journal, or the URL of the database."""
        is_journal = self.storage == JOURNAL_STORAGE
        return str(self.folder / JOURNAL) if is_journal else self.storage

    @property
    def place_for_dashboard(self) -> str:
        """The same with the driver that SQLAlchemy is to use: it would look for another one."""
        return self.place if self.storage == JOURNAL_STORAGE else driver_url(self.place)

    @property
    def reference(self) -> str:
        """What `study=` takes for it in the present directory."""
        name = self.folder.name
        return name if study_folder(name) == self.folder else str(self.folder)

    def words_of(self, view: TrialView) -> list[str]:
        """Return the options and overrides that train a trial's values."""
        drawn = {_key(word) for word in view.overrides}
        # Where the study ran is no part of what the trial was.
        places = ("infra", "store")
        kept = [word for word in self.base if _key(word).split(".")[0] not in places]
        base = [word for word in kept if _key(word) not in drawn]
        # As every trial has it: the number of threads changes the last bits of a result.
        threads = [] if any(_key(word) == "num_threads" for word in base) else ["num_threads=1"]
        return [*self.config_options, *base, *view.overrides, *threads]

    def train_command(self, view: TrialView) -> str:
        """Return the command that trains a trial's values, ready to be pasted."""
        text = command_line(["rlzoo-plus", "train", *self.words_of(view)])
        return printable(text, LONGEST_LINE)

    def published(self) -> Published:
        """Return what the study's report found, as far as it is valid."""
        data = read_json(self.folder / REPORTS[0])
        winner, experiment, best = (data.get(key) for key in ("winner", "experiment", "best"))
        rows = [row for row in best if isinstance(row, dict)] if isinstance(best, list) else []
        return Published(
            winner=winner if type(winner) is int else None,
            experiment=printable(experiment) if isinstance(experiment, str) else None,
            retrained={
                row["number"]: found
                for row in rows
                if type(row.get("number")) is int and (found := stored_retrained(row)) is not None
            },
        )


def open_stored(name: str, *, trust: bool = False) -> KnownStudy:
    """Return a study by its name below outputs/studies, or by the path of its directory.

    With `trust`, its database may be on another machine.
    """
    for folder in (Path(name), study_folder(name)):
        try:
            if (folder / NAME).is_file():
                return read_study_file(folder, trust=trust)
        except OSError:
            # The name is longer than any file's.
            continue
    known = sorted(file.parent.name for file in STUDIES.glob(f"*/{NAME}"))
    hint = closest(name, known)
    suggestion = f" Did you mean {printable(hint)!r}?" if hint else ""
    there = (
        f"There are: {printable(', '.join(known))}."
        if known
        else "Start one with `rlzoo-plus train -m hpo=ppo env=cartpole_bullet`."
    )
    raise ConfigError(f"{name}: no such study, here or in {STUDIES}.{suggestion} {there}")


def read_study_file(folder: Path, *, trust: bool = False) -> KnownStudy:
    """Read study.json, which may come from an untrusted source."""
    path = folder / NAME
    try:
        data = parse_json(read_plain_file(path, LARGEST_MANIFEST_BYTES))
        if not isinstance(data, dict):
            raise ValueError("it is no mapping")
        if data.get("format") != FORMAT:
            raise ValueError(f"its format is {printable(data.get('format'))}, not {FORMAT}")
        names = {field.name for field in dataclasses.fields(KnownStudy)} - {"folder", "trust"}
        content = {key: value for key, value in data.items() if key in names}
        study = KnownStudy(folder=folder, trust=trust, **content)
        if len(study.hpo.objectives) > _MOST_OBJECTIVES:
            raise ValueError(f"it has more than {_MOST_OBJECTIVES} objectives")
        return dataclasses.replace(study, storage=check_storage(study.storage))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}.") from error


def importances(study: optuna.Study, objective: int = 0) -> dict[str, float]:
    """Return the share of each parameter in reaching good values, the largest first.

    This is PED-ANOVA (Watanabe et al., 2023), as Optuna computes it: it needs no random forest, and
    parameters that only some trials have count too.

    Returns:
        Shares that sum to 1, by key; empty if there are fewer than `FEWEST_TRIALS` finished
        trials, or all of them have the same value.
    """
    trials = study.get_trials(deepcopy=False, states=(OptunaState.COMPLETE,))
    values = [trial.values[objective] for trial in trials if trial.values is not None]
    if len(values) < FEWEST_TRIALS or len(set(values)) < 2:
        return {}
    # The evaluator takes low targets for good ones, whatever the study's direction.
    sign = 1.0 if study.directions[objective] is optuna.study.StudyDirection.MINIMIZE else -1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = optuna.importance.get_param_importances(
            study,
            evaluator=optuna.importance.PedAnovaImportanceEvaluator(),
            target=lambda trial: sign * trial.values[objective],
        )
    return {key_of(name): share for name, share in sorted(found.items(), key=lambda i: -i[1])}


def few_trials_text(n_done: int) -> str:
    """Return a caution for importances of too few finished trials, empty for enough of them."""
    if n_done >= _ENOUGH_TRIALS:
        return ""
    return f"importances from {n_done} trials are uncertain: {_ENOUGH_TRIALS} or more"


_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w./@]*)=(?P<value>.*)", re.DOTALL)


def with_trial(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the overrides of the trial that it names; its own ones win."""
    matches = filter(None, map(_OVERRIDE.fullmatch, arguments))
    named = {match["key"]: match["value"] for match in matches}
    if not {"study", "trial"} <= named.keys():
        raise ConfigError("study=S and trial=N belong together. `rlzoo-plus study show S` lists N.")
    study, trial = named["study"], named["trial"]
    if not trial.isdecimal():
        raise ConfigError(f"trial={trial} must be the number of one trial, from 0.")
    trust = "--trust" in arguments
    known = open_stored(study, trust=trust)
    views = {view.number: view for view in known.study.trials()}
    view = views.get(int(trial))
    if view is None:
        there = f": its trials are 0 to {max(views)}" if views else ""
        raise ConfigError(f"study={study} has no trial {int(trial)}{there}.")
    if view.state in (TrialState.WAITING, TrialState.INVALID):
        raise ConfigError(f"study={study}: trial {trial} has no values that could be trained.")
    stored = known.words_of(view)
    refuse_foreign(stored, f"trial {trial} of {study}", trust=trust)
    rest = [w for w in arguments if _key(w) not in ("study", "trial") and w != "--trust"]
    given = {_key(word) for word in rest}
    return [*rest, *(word for word in stored if _key(word) not in given)]


def _key(word: str) -> str:
    match = _OVERRIDE.fullmatch(word)
    return match["key"] if match else word
