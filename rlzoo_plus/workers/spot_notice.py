"""The notice of a Spot instance that it is taken away, from its instance metadata (IMDSv2)."""

from __future__ import annotations

import contextlib
import http.client
import logging
import math
import os
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from rlzoo_plus.artifacts.untrusted import one_line, parse_json, printable
from rlzoo_plus.errors import ConfigError

log = logging.getLogger(__name__)
ENDPOINT = "http://169.254.169.254"
# As AWS's own tools name it.
VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
# How often AWS advises to look, and the most that a notice gives [s].
LOOK_S, LONGEST_NOTICE_S = 5.0, 120.0
_TIMEOUT_S, _LARGEST_BYTES, _TOKEN_S = 2.0, 2**12, 21_600
_NOTICE = "spot/instance-action"


class MetadataError(Exception):
    """The instance metadata cannot be read."""


class Metadata:
    """The metadata of the instance that this process runs on; used by one thread."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        """Find the endpoint; nothing is requested yet."""
        self._url = (environ.get(VARIABLE) or ENDPOINT).rstrip("/")
        if not self._url.startswith(("http://", "https://")):
            raise ConfigError(f"{VARIABLE}={self._url} is no URL, such as {ENDPOINT}.")
        self._token, self._token_ends = "", -math.inf
        # A proxy is another machine.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect)

    def get(self, name: str) -> str | None:
        """Return an entry such as `instance-type`, None if there is none.

        Raises:
            MetadataError: It cannot be read.
        """
        if time.monotonic() >= self._token_ends:
            header = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            token = self._request("PUT", "api/token", header)
            if token is None or not token.isascii() or not token.isprintable():
                raise MetadataError(f"{self._url} gives no token")
            self._token, self._token_ends = token, time.monotonic() + _TOKEN_S / 2
        header = {"X-aws-ec2-metadata-token": self._token}
        return self._request("GET", f"meta-data/{name}", header)

    def _request(self, method: str, path: str, header: dict[str, str]) -> str | None:
        url = f"{self._url}/latest/{path}"
        request = urllib.request.Request(url, headers=header, method=method)
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                text = answer.read(_LARGEST_BYTES).decode("utf-8", "replace")
            return str(text)
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404 and method == "GET":
                return None
            # The token may be that of an instance before it was stopped.
            self._token_ends = -math.inf
            raise MetadataError(f"{url}: {error.code}") from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise MetadataError(f"{url}: {one_line(error)}") from None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        """Follow nothing."""


class SpotWatch:
    """Looks for the notice of this instance in a thread, until there is one."""

    def __init__(self, metadata: Metadata) -> None:
        """Begin to look; `metadata` is for the watch alone from now on."""
        self._metadata = metadata
        # In `time.monotonic`.
        self._ends: float | None = None
        self._is_told = False
        threading.Thread(target=self._run, name="spot-notice", daemon=True).start()

    @property
    def is_noticed(self) -> bool:
        """Whether the instance is being taken away."""
        return self._ends is not None

    @property
    def left_s(self) -> float:
        """How long the instance is there still [s], infinite as far as is known."""
        return math.inf if self._ends is None else self._ends - time.monotonic()

    def _run(self) -> None:
        while True:
            left_s = self.look()
            if left_s is not None:
                log.warning("this Spot instance is taken away in %.0f s", left_s)
                self._ends = time.monotonic() + left_s
                return
            time.sleep(LOOK_S)

    def look(self) -> float | None:
        """Return how long the instance is there still [s], None if there is no notice."""
        try:
            text = self._metadata.get(_NOTICE)
        except MetadataError as error:
            if not self._is_told:
                log.warning("no notice of a Spot instance can be seen, but SIGTERM is: %s", error)
            self._is_told = True
            return None
        self._is_told = False
        return None if text is None else notice_s(text)


def notice_s(text: str, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """Return how long an instance is there after a notice [s]; the most if the notice is unclear.

    Args:
        text: `{"action": "terminate", "time": "2026-01-31T08:22:00Z"}`; hibernating and stopping
            end what runs, too.
        now: Tells the time.
    """
    with contextlib.suppress(ValueError, TypeError, KeyError):
        ends = datetime.fromisoformat(parse_json(text.encode())["time"])
        left_s = (ends - now()).total_seconds()
        # Either clock may be wrong.
        return min(max(left_s, 0.0), LONGEST_NOTICE_S)
    log.warning("the notice of this Spot instance is unclear: %s", printable(text))
    return LONGEST_NOTICE_S


def instance_type(metadata: Metadata) -> str | None:
    """Return the type of this instance, such as `c7a.xlarge`; None if it cannot be known."""
    try:
        found = metadata.get("instance-type")
    except MetadataError as error:
        log.debug("%s", error)
        return None
    return printable(found, 40) if found else None
