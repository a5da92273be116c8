"""study.json: what a study is and where its trials are kept, for those who come later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.artifacts.untrusted import (
    LARGEST_MANIFEST_BYTES,
    one_line,
    parse_json,
    printable,
    read_plain_file,
)
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.config.suggest import closest
from rlzoo_plus.tuning.plan import STUDIES, StudyPlan, study_folder
from rlzoo_plus.tuning.storage import JOURNAL_STORAGE, check_storage, require_optuna

if TYPE_CHECKING:
    from rlzoo_plus.tuning.stored import StoredStudy

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
        from rlzoo_plus.tuning.stored import StoredStudy

        self._check_host()
        study = StoredStudy.read(self.name, self.folder, self.storage)
        try:
            # Optuna does not look at what it reads.
            study.trials()
        except ConfigError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            raise ConfigError(
                f"{printable(study.storage)} is damaged: a trial in it is none ({one_line(error)})."
            ) from error
        if len(study.directions) != len(self.hpo.objectives):
            raise ConfigError(
                f"{self.folder / NAME} has {len(self.hpo.objectives)} objectives, but the trials "
                f"in {printable(study.storage)} are of a study with {len(study.directions)}."
            )
        return study

    def _check_host(self) -> None:
        """Refuse to log in where a stranger may want it: the password would go with it."""
        if self.storage == JOURNAL_STORAGE or self.trust:
            return
        require_optuna()
        from rlzoo_plus.tuning.database_host import foreign_host

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
    """Read study.json, which a stranger may have written.

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
