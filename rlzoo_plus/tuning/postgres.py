"""PostgreSQL as the storage of a study: which host it is on, opening it, waiting for it."""

from __future__ import annotations

import ipaddress
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from optuna.storages import RDBStorage

SCHEMES = ("postgresql", "postgres")
_CONNECT_TIMEOUT_S = 10
# Any number that other programs do not use: the key of the lock around making the tables.
_TABLES_LOCK = 0x726C7A6F6F
_SECRETS = ("password", "sslpassword")


def check_url(name: str) -> str:
    """Return a URL with the driver that is used here.

    Raises:
        ConfigError: It holds a password, or is no URL.
    """
    try:
        parts = urlsplit(name)
        has_password = parts.password is not None or _is_secret_to_the_driver(name)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"hpo.storage is no URL: {error}.") from None
    if has_password or any(key in _SECRETS for key, _ in parse_qsl(parts.query)):
        # The value itself is not repeated: this text ends up in logs.
        raise ConfigError(
            "hpo.storage holds a password, which would be kept in configurations and logs. "
            "Leave it out of the URL, and set PGPASSWORD or write it into ~/.pgpass."
        )
    if not parts.path.strip("/"):
        raise ConfigError(
            f"hpo.storage={printable(name)} names no database: postgresql://user@host/database."
        )
    return "postgresql+psycopg://" + name.partition("://")[2]


def _is_secret_to_the_driver(name: str) -> bool:
    """Tell whether SQLAlchemy, which reads URLs in its own way, finds a password in one."""
    try:
        from sqlalchemy.engine import make_url
        from sqlalchemy.exc import ArgumentError
    except ImportError:
        # Whoever opens it says what is missing.
        return False
    try:
        return make_url(name).password is not None
    except ArgumentError as error:
        raise ValueError("it has another form than postgresql://user@host/database") from error


def open_postgres(url: str, heartbeat_s: int, create: bool = True) -> RDBStorage:
    """Connect to a database, and make Optuna's tables there if they are missing.

    Args:
        url: As `check_url` returns it.
        heartbeat_s: A trial whose owner is silent four times as long is stale.
        create: Make the tables; without it, a database that has none is an error.

    Raises:
        ConfigError: There is no such server or database, or it does not let us in.
    """
    _require_driver()
    import sqlalchemy
    from optuna.storages import RDBStorage
    from sqlalchemy.pool import NullPool

    arguments = {"connect_args": {"connect_timeout": _CONNECT_TIMEOUT_S}}
    try:
        engine = sqlalchemy.create_engine(url, poolclass=NullPool, **arguments)
        # Two that make the tables at the same time would fail each other.
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SET LOCAL lock_timeout = '60s'"))
            lock = sqlalchemy.text("SELECT pg_advisory_xact_lock(:key)")
            connection.execute(lock, {"key": _TABLES_LOCK})
            return RDBStorage(
                url,
                engine_kwargs={**arguments, "pool_pre_ping": True},
                heartbeat_interval=heartbeat_s,
                grace_period=4 * heartbeat_s,
                skip_table_creation=not create,
            )
    except (sqlalchemy.exc.SQLAlchemyError, RuntimeError) as error:
        raise ConfigError(f"hpo.storage={_shown(url)}: {_reason(error)}.") from None


def is_gone(error: BaseException | None) -> bool:
    """Tell whether an error means that the server was away, not that the request was wrong."""
    from sqlalchemy.exc import InterfaceError, OperationalError, PendingRollbackError

    # The last one: an earlier rollback had no connection any more, and has been made up for by now.
    gone = (OperationalError, InterfaceError, PendingRollbackError)
    while error is not None:
        if isinstance(error, gone):
            return True
        error = error.__cause__
    return False


def patiently(action: Callable[[], Any], patience_s: float) -> Any:
    """Do something with a storage; while its server is away, try again.

    The action may have happened although it seems to have failed: the answer was lost.

    Raises:
        ConfigError: The server was away all the time.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import DBAPIError

    end, pause = time.monotonic() + patience_s, 0.1
    while True:
        try:
            return action()
        except (StorageInternalError, DBAPIError) as error:
            if not is_gone(error):
                raise
            if time.monotonic() + pause > end:
                raise ConfigError(
                    f"hpo.storage has been away for {patience_s:g} s: {_reason(error)}. "
                    "The same command goes on when it is back."
                ) from None
        time.sleep(pause)
        pause = min(2 * pause, 2.0)


def _require_driver() -> None:
    try:
        import psycopg  # noqa: F401
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"hpo.storage on PostgreSQL needs a driver ({one_line(error)}): "
            "pip install 'rlzoo-plus[postgres]'"
        ) from None


def _shown(url: str) -> str:
    return printable(url.replace("+psycopg", "", 1))


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


# Others name files, services or addresses, which an untrusted URL must not do.
_PLAIN = ("host", "hostaddr", "port", "user", "dbname", "sslmode", "connect_timeout")
# libpq takes these where the URL names no host.
_VARIABLES = ("PGSERVICE", "PGHOSTADDR", "PGHOST")


def foreign_host(name: str) -> str | None:
    """Return the host that a database's URL leads to, None if it is this machine.

    The arguments that the driver would be given are looked at, not the text: what two readers of
    URLs take for the host can differ.

    Args:
        name: A URL, as in `hpo.storage`.

    Raises:
        ConfigError: It is no URL of a database that could be used.
    """
    arguments = _arguments(name)
    host, address = (str(arguments.get(key) or "") for key in ("host", "hostaddr"))
    if not host and not address:
        host = next(filter(None, map(os.environ.get, _VARIABLES)), "")
    for each in (*host.split(","), *address.split(",")):
        if not _is_here(each):
            return each
    strange = next((key for key in arguments if key not in _PLAIN), None)
    # A name with these would be taken for a URL or settings of its own.
    is_plain = not any(mark in str(arguments.get("dbname", "")) for mark in ("=", "://"))
    return None if strange is None and is_plain else f"the one of its {strange or 'name'}"


def _arguments(name: str) -> dict[str, Any]:
    """Return what the driver would be given."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    try:
        url = make_url(check_url(name))
        found = dict(url.get_dialect()().create_connect_args(url)[1])
    except (SQLAlchemyError, ValueError, TypeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError("hpo.storage is no URL of a database.") from None
    return found


def _is_here(host: str) -> bool:
    # Nothing, a folder or an abstract name: a socket of this machine.
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
