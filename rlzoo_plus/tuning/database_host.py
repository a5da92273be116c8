"""Which machine a study's database is on: one that a stranger names may be the stranger's."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.tuning.postgres import check_url

# Others name files, services or addresses, which is not asked of a stranger's URL.
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
