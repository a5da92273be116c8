"""Asks a server for an override, with nothing but the standard library."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.errors import ConfigError, RunError

TOKEN = "RLZOO_PLUS_SERVE_TOKEN"
_PATIENCE_S, _LARGEST = 5.0, 2**16


def override_server(url: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Ask the server at a URL; return what it has taken.

    Raises:
        ConfigError: The server refuses it.
        RunError: No server answers.
    """
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get(TOKEN):
        headers["Authorization"] = f"Bearer {token}"
    address = f"{url.rstrip('/')}/v1/override"
    body = json.dumps(asked).encode()
    request = urllib.request.Request(address, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
            taken: dict[str, Any] = json.loads(answer.read(_LARGEST))
            return taken
    except HTTPError as error:
        raise ConfigError(f"{printable(url)}: {_reason(error)}") from None
    except (OSError, ValueError, HTTPException) as error:
        raise RunError(
            f"{printable(url)} does not answer ({one_line(error)}). The robot's own emergency stop "
            "is what is left."
        ) from None


def _reason(error: HTTPError) -> str:
    try:
        return printable(json.loads(error.read(_LARGEST))["error"])
    except (OSError, ValueError, LookupError, TypeError):
        return f"{error.code} {printable(error.reason)}"
