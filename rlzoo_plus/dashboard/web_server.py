"""The server of the pages: for this machine only, and read-only but for the notes beside runs.

Requests name runs by ids and files by names from lists, never by paths.
"""

from __future__ import annotations

import importlib.util
import os
import re
from http import HTTPStatus
from pathlib import Path
from typing import Any, BinaryIO

from rlzoo_plus.artifacts.untrusted import one_line, open_plain, parse_json
from rlzoo_plus.dashboard.annotations import checked, write_annotations
from rlzoo_plus.dashboard.runs_data import run_data, runs_data, videos
from rlzoo_plus.dashboard.series_data import AXES, clock_data, metrics_data, series_data
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.studies_data import study_data, sweep_data
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import LocalHandler, LocalServer, as_json

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
# Plotly sets styles from its script.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; media-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'"
)
_MOST_ASKED, _CHUNK = 100, 2**18
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


class DashboardServer(LocalServer):
    """The server; it listens as soon as it is made."""

    def __init__(self, source: Source, port: int, plotly: Path) -> None:
        """Listen at a port of this machine, 0 for any free one."""
        self.source, self.plotly = source, plotly
        super().__init__(port, _Handler)


class _Handler(LocalHandler):
    server: DashboardServer
    policy = POLICY

    def get(self, path: str, query: dict[str, str]) -> None:
        """Answer with a page's file, with data, or with a video."""
        name = path.removeprefix("/") or "index.html"
        if name in FILES:
            self.send_page((PAGE / name).read_bytes(), FILES[name])
        elif name == PLOTLY:
            self._send_file(open_plain(self.server.plotly), FILES["main.js"], keep=True)
        elif name.startswith("data/"):
            data = as_json(self._data(name.split("/")[1:], query))
            self.send(data, "application/json")
        elif name.startswith("videos/"):
            self._send_video(name.split("/")[1:])
        else:
            self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def post(self, path: str, body: bytes) -> None:
        """Write the notes of a run."""
        words = path.split("/")
        if len(words) != 3 or words[1] != "notes":
            return self.refuse(HTTPStatus.NOT_FOUND, "there is nothing to write")
        try:
            notes = checked(parse_json(body))
        except ConfigError as error:
            raise ValueError(one_line(error)) from error
        # Beside the light copy of a run in a store: a whole one is replaced with the run.
        write_annotations(self.server.source.entry(words[2]).run, notes)
        self.send(b"{}", "application/json")
        return None

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
            self.head(status, kind, left, **more)
            file.seek(first)
            while left and (data := file.read(min(_CHUNK, left))):
                self.wfile.write(data)
                left -= len(data)
