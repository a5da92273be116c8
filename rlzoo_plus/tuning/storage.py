"""Where a study is kept: a journal in its directory, or a PostgreSQL database."""

from __future__ import annotations

import functools
import io
import ipaddress
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, urlsplit

from filelock import FileLock

from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_lines
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tuning.study_folder import JOURNAL
from rlzoo_plus.tuning.with_optuna import BaseJournalBackend, optuna, sqlalchemy

JOURNAL_STORAGE = "journal"
# How long a server may be unreachable before a command gives up [s].
PATIENCE_S = 60.0
_CONNECT_TIMEOUT_S = 10
# The key of the lock around creating the tables: any number that other programs do not use.
_TABLES_LOCK = 0x726C7A6F6F

P = ParamSpec("P")
T = TypeVar("T")


def check_storage(name: str) -> str:
    """Return a storage's name, `journal` or a URL of PostgreSQL, as it may be stored and shown."""
    if name == JOURNAL_STORAGE:
        return name
    scheme, is_url, rest = name.partition("://")
    scheme = scheme.partition("+")[0].lower()
    if not is_url or scheme not in ("postgresql", "postgres"):
        # An unknown URL may hold a password too.
        shown = f"{scheme}://..." if is_url else printable(name)
        raise ConfigError(
            f"hpo.storage={shown} is not supported: journal, a file in the study's directory, for "
            "one machine or a shared disk; or postgresql://user@host/database, for many. Others "
            "do not keep every trial when processes are killed or write at once."
        )
    try:
        parts = urlsplit(name)
        keys = {key for key, _ in parse_qsl(parts.query)}
        # SQLAlchemy parses URLs in its own way.
        passwords = (parts.password, sqlalchemy.engine.make_url(name).password)
        _ = parts.port
    except sqlalchemy.exc.ArgumentError:
        raise ConfigError(
            "hpo.storage is no URL: it has another form than postgresql://user@host/database."
        ) from None
    except ValueError as error:
        raise ConfigError(f"hpo.storage is no URL: {error}.") from None
    if passwords != (None, None) or keys & {"password", "sslpassword"}:
        # The value itself is not repeated: this text ends up in logs.
        raise ConfigError(
            "hpo.storage holds a password, which would be kept in configurations and logs. "
            "Leave it out of the URL, and set PGPASSWORD or write it into ~/.pgpass."
        )
    if not parts.path.strip("/"):
        raise ConfigError(
            f"hpo.storage={printable(name)} names no database: postgresql://user@host/database."
        )
    return f"postgresql://{rest}"


def driver_url(name: str) -> str:
    """Return the URL of a database with the driver that SQLAlchemy is to use."""
    return name.replace("postgresql://", "postgresql+psycopg://", 1)


def open_storage(
    name: str, folder: Path, heartbeat_s: int, create: bool = True
) -> optuna.storages.BaseStorage:
    """Open a study's storage: the journal in the study's directory, or the database.

    In PostgreSQL, a trial is stale after four times `heartbeat_s` without a heartbeat. With
    `create`, the journal, or Optuna's tables, are made if there are none.
    """
    name = check_storage(name)
    if name == JOURNAL_STORAGE:
        return open_journal(folder, create)
    return _open_postgres(name, heartbeat_s, create)


def _open_postgres(name: str, heartbeat_s: int, create: bool) -> optuna.storages.RDBStorage:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"hpo.storage on PostgreSQL needs a driver ({one_line(error)}): "
            "pip install 'rlzoo-plus[postgres]'"
        ) from None
    url, connecting = driver_url(name), {"connect_timeout": _CONNECT_TIMEOUT_S}
    try:
        engine = sqlalchemy.create_engine(
            url, poolclass=sqlalchemy.pool.NullPool, connect_args=connecting
        )
        # Two processes that create the tables at the same time would fail each other.
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SET LOCAL lock_timeout = '60s'"))
            lock = sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)")
            connection.execute(lock, {"key": _TABLES_LOCK})
            return optuna.storages.RDBStorage(
                url,
                engine_kwargs={"connect_args": connecting, "pool_pre_ping": True},
                heartbeat_interval=heartbeat_s,
                grace_period=4 * heartbeat_s,
                skip_table_creation=not create,
            )
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        raise ConfigError(f"hpo.storage={printable(name)}: {_reason(error)}.") from None


_GONE = (
    sqlalchemy.exc.OperationalError,
    sqlalchemy.exc.InterfaceError,
    # An earlier rollback had no connection any more; it has been repeated by now.
    sqlalchemy.exc.PendingRollbackError,
)


def is_gone(error: BaseException | None) -> bool:
    """Return whether an error means that the server was away, not that the request was wrong."""
    while error is not None and not isinstance(error, _GONE):
        error = error.__cause__
    return error is not None


def patiently(action: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """Do something with a storage; while its server is away, try again.

    The action may have happened although it seems to have failed: the answer was lost.
    """
    end, pause = time.monotonic() + patience_s, 0.1
    while True:
        try:
            return action()
        except (optuna.exceptions.StorageInternalError, sqlalchemy.exc.DBAPIError) as error:
            if not is_gone(error):
                raise
            if time.monotonic() + pause > end:
                raise ConfigError(
                    f"hpo.storage has been unreachable for {patience_s:g} s: {_reason(error)}. "
                    "The same command continues when it is back."
                ) from None
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


def patient(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator that calls a method with `patiently`."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return patiently(lambda: method(*args, **kwargs))

    return call


def _reason(error: BaseException) -> str:
    """Return the cause in one line; SQLAlchemy and Optuna wrap it in texts of their own."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()).rstrip(".")
    hint = ""
    if "password" in text:
        hint = ". Set PGPASSWORD, or write the password into ~/.pgpass"
    elif "does not exist" in text and "database" in text:
        hint = ". Make it with createdb"
    return printable(text) + hint


# Other arguments name files, services or addresses, which an untrusted URL must not do.
_PLAIN = ("host", "hostaddr", "port", "user", "dbname", "sslmode", "connect_timeout")
# libpq takes these where the URL names no host.
_VARIABLES = ("PGSERVICE", "PGHOSTADDR", "PGHOST")


def foreign_host(name: str) -> str | None:
    """Return the host that a database's URL leads to, None if it is this machine.

    It looks at the arguments that the driver would be given, not at the text: two parsers of URLs
    may take different parts for the host.
    """
    name = check_storage(name)
    try:
        url = sqlalchemy.engine.make_url(driver_url(name))
        arguments = dict(url.get_dialect()().create_connect_args(url)[1])
    except (sqlalchemy.exc.SQLAlchemyError, ValueError, TypeError):
        raise ConfigError("hpo.storage is no URL of a database.") from None
    host, address = (str(arguments.get(key) or "") for key in ("host", "hostaddr"))
    if not host and not address:
        host = next(filter(None, map(os.environ.get, _VARIABLES)), "")
    for each in (*host.split(","), *address.split(",")):
        if not _is_here(each):
            return each
    odd = next((key for key in arguments if key not in _PLAIN), None)
    # A name with these would be taken for a URL or settings of its own.
    is_plain = not any(mark in str(arguments.get("dbname", "")) for mark in ("=", "://"))
    return None if odd is None and is_plain else f"the one of its {odd or 'name'}"


def _is_here(host: str) -> bool:
    # Nothing, a folder or an abstract name: a socket of this machine.
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# A record is written in milliseconds: a longer wait is for a stopped process.
_LOCK_PATIENCE_S = 300.0
LARGEST_BYTES = 2**29
# The most records that one trial or study may have, by Optuna's code of the kind of record. Optuna
# copies all earlier ones for each. A study's directory holds one study.
_STUDY = 0
_MOST = {_STUDY: 100, 2: 5_000, 3: 5_000, 5: 5_000, 7: 10_000, 8: 5_000, 9: 5_000}


def open_journal(folder: Path, create: bool) -> optuna.storages.JournalStorage:
    """Open the journal in a study's directory; with `create`, create it if there is none."""
    path = folder / JOURNAL
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise ConfigError(f"{path} is no plain file, so it is no journal of a study.")
    if path.exists():
        _check_size(path)
    elif not create:
        raise ConfigError(f"{folder} holds no study: there is no {JOURNAL}.")
    else:
        folder.mkdir(parents=True, exist_ok=True)
    # Optuna does not check what is written there.
    damages = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RecursionError)
    try:
        return optuna.storages.JournalStorage(SafeJournal(folder))
    except OSError as error:
        raise ConfigError(f"{path} cannot be used: {one_line(error)}.") from None
    except damages as error:
        raise ConfigError(
            f"{path} is damaged, {one_line(error)}. Remove what is no record, or begin a new "
            "study with hpo.study=NAME."
        ) from None


class SafeJournal(BaseJournalBackend):
    """A journal whose last record may be torn: it is cut off before the next one is written.

    Each record is on the disk before the lock is released, so no other can be torn. Readers skip a
    torn last record; with a record after it, the journal would be unreadable.
    """

    def __init__(self, folder: Path) -> None:
        self._path = (folder / JOURNAL).absolute()
        # The system releases it when its holder is dead. Optuna's own locks are files: one that a
        # killed process leaves blocks all others for thirty seconds, and then may have two owners.
        self._lock = FileLock(self._path.with_name(".journal.lock"), timeout=_LOCK_PATIENCE_S)
        if not self._path.exists():
            self._path.touch()
        # How many records there are up to a place in the file.
        self._read = (0, 0)

    def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
        """Yield the records from a number on; a torn last one is skipped.

        Optuna's own reader fails on zeros, which a power failure may leave.

        Raises:
            ValueError: A record before the last one is torn.
        """
        number, place = self._read if self._read[0] <= log_number_from else (0, 0)
        with open(self._path, "rb") as file:
            file.seek(place)
            # In one piece: others write, and what they have half written comes last.
            lines = io.BytesIO(file.read()).readlines()
        for index, line in enumerate(lines):
            record = _record(line)
            if record is None:
                if index < len(lines) - 1:
                    raise ValueError(f"line {number + 1} is no record")
                return
            number, place = number + 1, place + len(line)
            self._read = (number, place)
            if number > log_number_from:
                yield record

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append records with one write, and flush them to the disk."""
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        # A file that was removed must not come back without its beginning: "r+b".
        with self._lock.acquire(poll_interval=0.005), open(self._path, "r+b", buffering=0) as file:
            # Up to the last whole record. After a power failure there may be zeros after it.
            for _ in self.read_logs(self._read[0]):
                pass
            file.truncate(self._read[1])
            file.seek(self._read[1])
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())


def _record(line: bytes) -> dict[str, Any] | None:
    if not line.endswith(b"\n"):
        return None
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _check_size(path: Path) -> None:
    """Refuse a journal that would take minutes or all memory to read."""
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"{path} is larger than {LARGEST_BYTES // 2**20} MiB: no study's journal."
        )
    seen: Counter[tuple[int, int]] = Counter()
    for line in read_plain_lines(path):
        record = _record(line + b"\n") or {}
        code = record.get("op_code")
        if type(code) is not int or code not in _MOST:
            continue
        about = 0 if code == _STUDY else record.get("trial_id", record.get("study_id"))
        if type(about) is not int:
            continue
        seen[code, about] += 1
        if seen[code, about] > _MOST[code]:
            raise ConfigError(
                f"{path} has more than {_MOST[code]} records of one kind for the same trial or "
                "study: no study's journal."
            )
