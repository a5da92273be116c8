"""Where a study is kept: a journal in its directory, or a PostgreSQL database."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.postgres import SCHEMES, check_url, open_postgres

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

JOURNAL_STORAGE = "journal"


def check_storage(name: str) -> str:
    """Return a storage's name as it may be kept and shown.

    Args:
        name: `journal`, or `postgresql://user@host/database`.

    Raises:
        ConfigError: It is another kind of storage, or holds a password.
    """
    if name == JOURNAL_STORAGE:
        return name
    scheme = name.partition("://")[0].partition("+")[0].lower()
    if "://" in name and scheme in SCHEMES:
        return check_url(name).replace("+psycopg", "", 1)
    # An unknown URL may hold a password too.
    shown = f"{scheme}://..." if "://" in name else printable(name)
    raise ConfigError(
        f"hpo.storage={shown} is not supported: journal, a file in the study's directory, for one "
        "machine or a shared disk; or postgresql://user@host/database, for many. Others do not "
        "keep every trial when processes are killed or write at once."
    )


def open_storage(name: str, folder: Path, heartbeat_s: int, create: bool = True) -> BaseStorage:
    """Open a study's storage.

    Args:
        name: As in `hpo.storage`.
        folder: The study's directory, which holds the journal.
        heartbeat_s: With PostgreSQL, a trial's owner that is silent four times as long is dead.
        create: Begin a journal if there is none.

    Raises:
        ConfigError: There is no such storage, or it cannot be used.
    """
    require_optuna()
    name = check_storage(name)
    if name != JOURNAL_STORAGE:
        return open_postgres(check_url(name), heartbeat_s, create)
    return _open_journal(folder, create)


def require_optuna() -> None:
    """Make Optuna ready, without what it says to developers.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        quiet_optuna()
    except ImportError as error:
        raise ConfigError(
            f"a study needs Optuna ({one_line(error)}): pip install 'rlzoo-plus[tune]'"
        ) from None


def _open_journal(folder: Path, create: bool) -> BaseStorage:
    from optuna.storages import JournalStorage

    from rlzoo_plus.tuning.journal import JOURNAL, SafeJournal, check_journal

    path = folder / JOURNAL
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path} is no plain file, so it is no journal of a study.")
    if not path.exists():
        if not create:
            raise ConfigError(f"{folder} holds no study: there is no {JOURNAL}.")
        folder.mkdir(parents=True, exist_ok=True)
    check_journal(path)
    try:
        return JournalStorage(SafeJournal(folder))
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {one_line(error)}.") from None
    # Optuna trusts what is written there, and stumbles over anything else.
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        AssertionError,
        RecursionError,
    ) as error:
        raise ConfigError(
            f"{path} is damaged, {one_line(error)}. Remove what is no record, or begin a new "
            "study with hpo.study=NAME."
        ) from None


def quiet_optuna() -> None:
    """Turn off Optuna's progress lines and its warnings about experimental arguments."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # Heartbeats are ours to send: the work is done by other processes than the one that asks.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")
