"""A server of pages for the browser of this machine alone.

The name of the host must be this machine's, so that no other site can reach the server through a
name of its own (DNS rebinding). What changes something needs the token of the page, which other
sites cannot read.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.errors import ConfigError

HOST = "127.0.0.1"
_HOSTS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_LARGEST_BODY = 2**16
# Where a page has the token that its writing needs.
TOKEN = b"{{token}}"


def as_json(data: Any) -> bytes:
    """Return plain data as JSON in ASCII; NaN and infinities become null."""
    return json.dumps(finite(data), separators=(",", ":"), allow_nan=False).encode()


class LocalServer(ThreadingHTTPServer):
    """A server that listens on this machine alone, as soon as it is made.

    Attributes:
        token: What a page sends along when it changes something.
    """

    daemon_threads = True

    def __init__(self, port: int, handler: type[LocalHandler]) -> None:
        """Listen at a port, 0 for any free one.

        Raises:
            ConfigError: It is none, or taken.
        """
        self.token = secrets.token_urlsafe(24)
        if not 0 <= port < 2**16:
            raise ConfigError(f"--port {port}: must be from 1 to 65535.")
        try:
            super().__init__((HOST, port), handler)
        except OSError:
            raise ConfigError(
                f"--port {port} is taken. Choose another, e.g. --port {port + 1}."
            ) from None


class LocalHandler(BaseHTTPRequestHandler):
    """Answers requests of pages; a server's own subclass says with what.

    Attributes:
        policy: What its pages may load, as a Content-Security-Policy.
    """

    server: LocalServer
    protocol_version = "HTTP/1.1"
    policy = "default-src 'none'"
    # Of the connection [s]: a client that sends nothing does not keep a thread.
    timeout = 60

    @abstractmethod
    def get(self, path: str, query: dict[str, str]) -> None:
        """Answer a request for a page or for data; a ConfigError says that there is none."""

    @abstractmethod
    def post(self, path: str, body: bytes) -> None:
        """Do what a page asks for; a ValueError says what is wrong with the body."""

    def do_GET(self) -> None:
        """Answer with a page or with data."""
        self._answer(self.get)

    def do_POST(self) -> None:
        """Let a page of this server change something."""
        self._answer(self._checked_post)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are many and say little."""

    def version_string(self) -> str:
        """Return what this server calls itself."""
        return "rlzoo-plus"

    def send(self, data: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        """Send an answer of a media type."""
        self.head(status, kind, len(data))
        self.wfile.write(data)

    def send_page(self, page: bytes, kind: str) -> None:
        """Send a page with the token that its writing needs."""
        self.send(page.replace(TOKEN, self.server.token.encode()), kind)

    def refuse(self, status: HTTPStatus, reason: str) -> None:
        """Send why there is no answer."""
        # What was not read of a request would be taken for the next one.
        self.close_connection = True
        self.send(as_json({"error": reason}), "application/json", status)

    def head(self, status: HTTPStatus, kind: str, size: int, **more: str) -> None:
        """Send the head of an answer; names of further fields have _ for -."""
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(size), "Cache-Control": "no-store"}
        policy = {"Content-Security-Policy": f"{self.policy}; frame-ancestors 'none'"}
        for name, value in {**told, **policy, **_HEADERS, **more}.items():
            self.send_header(name.replace("_", "-"), value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _answer(self, act: Callable[[str, dict[str, str]], None]) -> None:
        try:
            if _HOSTS.fullmatch(self.headers.get("Host", "")) is None:
                return self.refuse(HTTPStatus.FORBIDDEN, "this host is not served")
            if self.headers.get("Sec-Fetch-Site", "none") == "cross-site" and self.path != "/":
                return self.refuse(HTTPStatus.FORBIDDEN, "other sites are not served")
            parts = urlsplit(self.path)
            act(parts.path, {key: values[-1] for key, values in parse_qs(parts.query).items()})
        except ConfigError as error:
            self.refuse(HTTPStatus.NOT_FOUND, one_line(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            # One damaged file must not end the thread without an answer.
            self.refuse(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(error))

    def _checked_post(self, path: str, _: dict[str, str]) -> None:
        origin = self.headers.get("Origin")
        is_ours = origin is None or origin == f"http://{self.headers['Host']}"
        token = self.headers.get("X-Token", "")
        if not is_ours or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self.refuse(HTTPStatus.FORBIDDEN, "reload the page to write")
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _LARGEST_BODY:
            return self.refuse(HTTPStatus.BAD_REQUEST, "the request is too large")
        try:
            self.post(path, self.rfile.read(int(size)))
        except ConfigError:
            raise
        except ValueError as error:
            self.refuse(HTTPStatus.BAD_REQUEST, one_line(error))
        return None
