"""A study that exists: study.json, its trials, and the command line of one of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rlzoo_plus.artifacts.atomic import write_json
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
from rlzoo_plus.tuning.postgres import patiently
from rlzoo_plus.tuning.storage import JOURNAL_STORAGE, check_storage, open_storage, require_optuna
from rlzoo_plus.tuning.study_plan import STUDIES, StudyPlan, study_folder
from rlzoo_plus.tuning.study_report import FILES as REPORT_FILES
from rlzoo_plus.tuning.trials import TrialState, TrialView, view_of

if TYPE_CHECKING:
    import optuna
    from optuna.storages import BaseStorage

ABOUT = "about"
# For so long a server may be away before a command gives up [s].
PATIENCE_S = 60.0


class StoredStudy:
    """A study that can be read."""

    def __init__(
        self, study: optuna.Study, storage: BaseStorage, folder: Path, storage_name: str
    ) -> None:
        self.optuna_study, self.storage = study, storage
        self.folder, self.storage_name = folder, check_storage(storage_name)

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
        return StoredStudy(study, storage, folder, storage_name)

    @property
    def name(self) -> str:
        """Its name in the storage."""
        return str(self.optuna_study.study_name)

    @property
    def place(self) -> str:
        """Where it is kept, for people."""
        if self.storage_name == JOURNAL_STORAGE:
            return str(self.folder / "journal.log")
        return printable(self.storage_name)

    @property
    def about(self) -> dict[str, Any]:
        """What was fixed when it began."""
        value = patiently(lambda: self.optuna_study.user_attrs.get(ABOUT), PATIENCE_S)
        return value if isinstance(value, dict) else {}

    @property
    def directions(self) -> tuple[str, ...]:
        """Whether each objective is to be made large or small: `maximize`, `minimize`."""
        return tuple(direction.name.lower() for direction in self.optuna_study.directions)

    def trials(self) -> list[TrialView]:
        """Return all trials by number."""
        read = self.optuna_study.get_trials
        found = patiently(lambda: read(deepcopy=False), PATIENCE_S)
        return [view_of(trial) for trial in sorted(found, key=lambda trial: trial.number)]

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


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


NAME = "study.json"
FORMAT = 1
# Each is a column of a table.
_MOST_OBJECTIVES = 20


@dataclass(frozen=True)
class KnownStudy:
    """A study that exists.

    Attributes:
        folder: Its directory.
        name: What it is called, in its storage too.
        storage: `journal`, or the URL of a database, without a password.
        hpo: The settings of the command that began it.
        base: The overrides that hold for every trial.
        config_options: The options that say where configuration files lie.
        trust: Its database may be asked wherever it is.
    """

    folder: Path
    name: str
    storage: str
    hpo: HpoConfig
    base: tuple[str, ...]
    config_options: tuple[str, ...] = ()
    trust: bool = False

    @cached_property
    def study(self) -> StoredStudy:
        """The trials.

        Raises:
            ConfigError: The storage cannot be read, has no such study, or is on another machine
                and not trusted.
        """
        self._check_host()
        study = StoredStudy.read(self.name, self.folder, self.storage)
        try:
            # Optuna does not look at what it reads.
            study.trials()
        except ConfigError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ConfigError(
                f"{printable(study.place)} is damaged: a trial in it is none ({one_line(error)})."
            ) from error
        if len(study.directions) != len(self.hpo.objectives):
            raise ConfigError(
                f"{self.folder / NAME} has {len(self.hpo.objectives)} objectives, but the trials "
                f"in {printable(study.place)} are of a study with {len(study.directions)}."
            )
        return study

    @property
    def reference(self) -> str:
        """The word that `study=` finds it by from here."""
        name = self.folder.name
        return name if study_folder(name) == self.folder else str(self.folder)

    def words_of(self, view: TrialView) -> list[str]:
        """Return the options and overrides that train a trial's values."""
        drawn = {_key(word) for word in view.overrides}
        # Where the study ran is no part of what the trial was.
        base = [w for w in self.base if _key(w) not in drawn and _key(w).split(".")[0] != "infra"]
        # As every trial has it: the number of threads changes the last bits of a result.
        threads = [] if any(_key(word) == "num_threads" for word in base) else ["num_threads=1"]
        return [*self.config_options, *base, *view.overrides, *threads]

    def train_command(self, view: TrialView) -> str:
        """Return the command that trains a trial's values, ready to be pasted."""
        text = command_line(["rlzoo-plus", "train", *self.words_of(view)])
        return printable(text, LONGEST_LINE)

    def published(self) -> tuple[int | None, str | None]:
        """Return the winner and its experiment, as far as the study's report makes sense."""
        data = read_json(self.folder / REPORT_FILES[0])
        winner, experiment = data.get("winner"), data.get("experiment")
        return (
            winner if type(winner) is int else None,
            printable(experiment) if isinstance(experiment, str) else None,
        )

    def _check_host(self) -> None:
        """Refuse to log in where an untrusted study wants it: the password would go with it."""
        if self.storage == JOURNAL_STORAGE or self.trust:
            return
        require_optuna()
        from rlzoo_plus.tuning.postgres import foreign_host

        host = foreign_host(self.storage)
        if host is not None:
            raise ConfigError(
                f"{self.folder / NAME} keeps its trials in a database on another machine, "
                f"{printable(host)}, which would be told your user and PGPASSWORD. If you know "
                "where the study comes from, add --trust."
            )


def write_study_file(plan: StudyPlan, config_options: Sequence[str]) -> None:
    """Write what those who come later need to know of a study."""
    content = {
        "format": FORMAT,
        "name": plan.name,
        "storage": plan.hpo.storage,
        "hpo": plan.hpo.model_dump(mode="json"),
        "base": list(plan.fixed),
        "config_options": list(config_options),
    }
    write_json(plan.folder / NAME, content)


def open_stored(name: str, *, trust: bool = False) -> KnownStudy:
    """Return a study that exists; a name is looked up below outputs/studies.

    Args:
        name: Its name, or the path of its directory.
        trust: Ask a database on another machine, should it be there.

    Raises:
        ConfigError: There is none, or its file cannot be read.
    """
    for folder in (Path(name), study_folder(name)):
        if _has_file(folder):
            return read_study_file(folder, trust=trust)
    known = sorted(file.parent.name for file in STUDIES.glob(f"*/{NAME}"))
    hint = closest(name, known)
    suggestion = f" Did you mean {printable(hint)!r}?" if hint else ""
    there = (
        f"There are: {printable(', '.join(known))}."
        if known
        else ("Start one with `rlzoo-plus train -m hpo=ppo env=cartpole_bullet`.")
    )
    raise ConfigError(f"{name}: no such study, here or in {STUDIES}.{suggestion} {there}")


def _has_file(folder: Path) -> bool:
    try:
        return (folder / NAME).is_file()
    except OSError:
        # The name is longer than any file's.
        return False


def read_study_file(folder: Path, *, trust: bool = False) -> KnownStudy:
    """Read study.json, which may come from an untrusted source.

    Args:
        folder: The study's directory.
        trust: Ask a database on another machine, should it be there.

    Raises:
        ConfigError: It is missing, damaged, or of another format.
    """
    path = folder / NAME
    try:
        data = parse_json(read_plain_file(path, LARGEST_MANIFEST_BYTES))
        return _parse(folder, data, trust)
    except (OSError, ValueError, ValidationError) as error:
        raise ConfigError(f"{path} cannot be read: {one_line(error)}.") from error


def _parse(folder: Path, data: Any, trust: bool) -> KnownStudy:
    if not isinstance(data, dict):
        raise ValueError("it is no mapping")
    if data.get("format") != FORMAT:
        raise ValueError(f"its format is {printable(data.get('format'))}, not {FORMAT}")
    name, storage = data.get("name"), data.get("storage")
    if not isinstance(name, str) or not isinstance(storage, str) or not name or not storage:
        raise ValueError("name and storage must be texts")
    hpo = HpoConfig.model_validate(data.get("hpo"))
    base, options = (_words(data, key) for key in ("base", "config_options"))
    if len(hpo.objectives) > _MOST_OBJECTIVES:
        raise ValueError(f"it has more than {_MOST_OBJECTIVES} objectives")
    return KnownStudy(folder, name, check_storage(storage), hpo, base, options, trust)


def _words(data: dict[str, Any], key: str) -> tuple[str, ...]:
    words = data.get(key, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"{key} must be a list of texts")
    return tuple(words)


_NAMES = ("study", "trial")
_OVERRIDE = re.compile(r"[+~]{0,2}(?P<key>[A-Za-z_][\w./@]*)=(?P<value>.*)", re.DOTALL)


def with_trial(arguments: Sequence[str]) -> list[str]:
    """Return a command line with the trial's own words; what stands beside them wins.

    Raises:
        ConfigError: There is no such trial, or its words import code and are not trusted.
    """
    named = {key: value for key, value in _pairs(arguments) if key in _NAMES}
    if set(named) != set(_NAMES):
        raise ConfigError("study=S and trial=N belong together. `rlzoo-plus study show S` lists N.")
    rest = [word for word in arguments if _key(word) not in _NAMES and word != "--trust"]
    trust = "--trust" in arguments
    stored = _stored(named["study"], _number(named["trial"]), trust=trust)
    refuse_foreign(stored, f"trial {named['trial']} of {named['study']}", trust=trust)
    given = {_key(word) for word in rest}
    return [*rest, *(word for word in stored if _key(word) not in given)]


def _stored(study: str, number: int, *, trust: bool) -> list[str]:
    stored = open_stored(study, trust=trust)
    views = {view.number: view for view in stored.study.trials()}
    if number not in views:
        last = max(views, default=None)
        raise ConfigError(
            f"study={study} has no trial {number}"
            + ("." if last is None else f": its trials are 0 to {last}.")
        )
    view = views[number]
    if view.state in (TrialState.WAITING, TrialState.INVALID):
        raise ConfigError(f"study={study}: trial {number} has no values that could be trained.")
    return stored.words_of(view)


def _number(text: str) -> int:
    if not text.isdecimal():
        raise ConfigError(f"trial={text} must be the number of one trial, from 0.")
    return int(text)


def _pairs(arguments: Sequence[str]) -> list[tuple[str, str]]:
    matches = [_OVERRIDE.fullmatch(word) for word in arguments]
    return [(match["key"], match["value"]) for match in matches if match]


def _key(word: str) -> str:
    match = _OVERRIDE.fullmatch(word)
    return match["key"] if match else word
