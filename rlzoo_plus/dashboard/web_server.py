"""The server of the pages: for this machine only, and read-only but for the notes beside runs.

Requests name runs by ids and files by names from lists, never by paths. The name of the host must
be this machine's, so that no other site can reach the server through a name of its own (DNS
rebinding). Notes are written only with the token of the page, which other sites cannot read.
"""

from __future__ import annotations

import hmac
import importlib.util
import json
import os
import re
import secrets
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import parse_qs, urlsplit

from rlzoo_plus.artifacts.atomic import finite
from rlzoo_plus.artifacts.untrusted import one_line, open_plain, parse_json
from rlzoo_plus.dashboard.annotations import checked, write_annotations
from rlzoo_plus.dashboard.runs_data import run_data, runs_data, videos
from rlzoo_plus.dashboard.series_data import AXES, clock_data, metrics_data, series_data
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.studies_data import study_data, sweep_data
from rlzoo_plus.errors import ConfigError

HOST = "127.0.0.1"
PLOTLY = "plotly.min.js"
PAGE = Path(__file__).with_name("page")
FILES = {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    **{
        f"{name}.js": "text/javascript; charset=utf-8"
        for name in ("data", "stats", "charts", "parts", "views", "details", "main")
    },
}
_HOSTS = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")
# Plotly sets styles from its script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
_HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_MOST_ASKED, _LARGEST_BODY, _CHUNK = 100, 2**16, 2**18
_RANGE = re.compile(r"bytes=(?P<first>\d{1,15})-(?P<last>\d{0,15})")


def plotly_file() -> Path:
    """Return the file of plotly.js in the installed package; a ConfigError without it."""
    found = importlib.util.find_spec("plotly")
    places = (found and found.submodule_search_locations) or []
    for place in places:
        file = Path(place) / "package_data" / PLOTLY
        if file.is_file():
            return file
    raise ConfigError("the dashboard needs Plotly: pip install 'rlzoo-plus[dashboard]'.")


def as_json(data: Any) -> bytes:
    """Return plain data as JSON in ASCII; NaN and infinities become null."""
    return json.dumps(finite(data), separators=(",", ":"), allow_nan=False).encode()


class DashboardServer(ThreadingHTTPServer):
    """The server; it listens as soon as it is made."""

    daemon_threads = True

    def __init__(self, source: Source, port: int, plotly: Path) -> None:
        """Listen at a port of this machine, 0 for any free one."""
        self.source, self.plotly, self.token = source, plotly, secrets.token_urlsafe(24)
        super().__init__((HOST, port), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: DashboardServer
    protocol_version = "HTTP/1.1"
    # Of the connection [s]: a client that sends nothing does not keep a thread.
    timeout = 60

    def do_GET(self) -> None:
        """Answer with a page's file, with data, or with a video."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Write the notes of a run."""
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: requests are many and say little."""

    def version_string(self) -> str:
        """Return what this server calls itself."""
        return "rlzoo-plus"

    def _answer(self, act: Callable[[str, dict[str, str]], None]) -> None:
        try:
            if _HOSTS.fullmatch(self.headers.get("Host", "")) is None:
                return self._refuse(HTTPStatus.FORBIDDEN, "this host is not served")
            if self.headers.get("Sec-Fetch-Site", "none") == "cross-site" and self.path != "/":
                return self._refuse(HTTPStatus.FORBIDDEN, "other sites are not served")
            parts = urlsplit(self.path)
            act(parts.path, {key: values[-1] for key, values in parse_qs(parts.query).items()})
        except ConfigError as error:
            self._refuse(HTTPStatus.NOT_FOUND, one_line(error))
        except (ConnectionError, TimeoutError):
            self.close_connection = True
        except Exception as error:
            # One damaged run must not end the thread without an answer.
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, one_line(error))

    def _get(self, path: str, query: dict[str, str]) -> None:
        name = path.removeprefix("/") or "index.html"
        if name in FILES:
            data = (PAGE / name).read_bytes()
            if name == "index.html":
                data = data.replace(b"{{token}}", self.server.token.encode())
            self._send(data, FILES[name])
        elif name == PLOTLY:
            self._send_file(open_plain(self.server.plotly), FILES["main.js"], keep=True)
        elif name.startswith("data/"):
            data = as_json(self._data(name.split("/")[1:], query))
            self._send(data, "application/json")
        elif name.startswith("videos/"):
            self._send_video(name.split("/")[1:])
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _data(self, words: list[str], query: dict[str, str]) -> Any:
        source = self.server.source
        ids = [word for word in query.get("ids", "").split(",") if word][:_MOST_ASKED]
        match words:
            case ["runs"]:
                return runs_data(source)
            case ["metrics"]:
                return metrics_data(source)
            case ["series"]:
                return series_data(source, ids, query.get("metric", ""))
            case ["clock"] if query.get("axis") in AXES:
                return clock_data(source, ids, query["axis"])
            case ["run", run_id]:
                return run_data(source, run_id)
            case ["sweep", parent_id]:
                return sweep_data(source, parent_id)
            case ["study", study_id]:
                return study_data(source, study_id)
        raise ConfigError("there is no such data.")

    def _send_video(self, words: list[str]) -> None:
        run_id, _, wanted = "/".join(words).partition("/")
        for path in videos(self.server.source.directory(run_id, bring=True)):
            if path.name == wanted:
                return self._send_file(open_plain(path), "video/mp4")
        raise ConfigError("there is no such video.")

    def _post(self, path: str, _: dict[str, str]) -> None:
        origin = self.headers.get("Origin")
        is_ours = origin is None or origin == f"http://{self.headers['Host']}"
        token = self.headers.get("X-Token", "")
        if not is_ours or not hmac.compare_digest(token.encode(), self.server.token.encode()):
            return self._refuse(HTTPStatus.FORBIDDEN, "reload the page to write")
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal() or int(size) > _LARGEST_BODY:
            return self._refuse(HTTPStatus.BAD_REQUEST, "the request is too large")
        words = path.split("/")
        if len(words) != 3 or words[1] != "notes":
            return self._refuse(HTTPStatus.NOT_FOUND, "there is nothing to write")
        try:
            notes = checked(parse_json(self.rfile.read(int(size))))
        except (ConfigError, ValueError) as error:
            return self._refuse(HTTPStatus.BAD_REQUEST, one_line(error))
        # Beside the light copy of a run in a store: a whole one is replaced with the run.
        write_annotations(self.server.source.entry(words[2]).run, notes)
        self._send(b"{}", "application/json")
        return None

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        # What was not read of a request would be taken for the next one.
        self.close_connection = True
        self._send(as_json({"error": reason}), "application/json", status)

    def _send(self, data: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        self._head(status, kind, len(data))
        self.wfile.write(data)

    def _head(self, status: HTTPStatus, kind: str, size: int, **more: str) -> None:
        self.send_response(status)
        told = {"Content-Type": kind, "Content-Length": str(size), "Cache-Control": "no-store"}
        for name, value in {**told, **_HEADERS, **more}.items():
            self.send_header(name.replace("_", "-"), value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()

    def _send_file(self, file: BinaryIO, kind: str, *, keep: bool = False) -> None:
        """Send a file or the part that is asked for: browsers seek in videos."""
        with file:
            size = os.fstat(file.fileno()).st_size
            more = {"Accept_Ranges": "bytes"}
            if keep:
                more["Cache_Control"] = "max-age=3600"
            asked = _RANGE.fullmatch(self.headers.get("Range", ""))
            first, last, status = 0, size - 1, HTTPStatus.OK
            if asked is not None and int(asked["first"]) < size:
                first, status = int(asked["first"]), HTTPStatus.PARTIAL_CONTENT
                last = min(int(asked["last"] or last), last)
                more["Content_Range"] = f"bytes {first}-{last}/{size}"
            left = max(last - first + 1, 0)
            self._head(status, kind, left, **more)
            file.seek(first)
            while left and (data := file.read(min(_CHUNK, left))):
                self.wfile.write(data)
                left -= len(data)
