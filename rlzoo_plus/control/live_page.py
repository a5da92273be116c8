"""A page that shows a session while it runs, with buttons that take the robot over.

It reads the session's files in a process of its own, so that the loop never waits for a browser,
and it goes on showing what was read when the loop has died.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import (
    parse_json,
    printable,
    read_plain_file,
    read_plain_part,
    read_plain_tail,
)
from rlzoo_plus.control.attention import LOG, OF_JOINTS, RELEASE, override
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.local_pages import LocalHandler, LocalServer, as_json

_PAGE = Path(__file__).with_suffix(".html")
_LARGEST_ABOUT, _LARGEST_PART, _LONGEST_HEADER, _EVENTS = 2**20, 2**20, 2**17, 2**13
_N_EVENTS = 12
# A loop writes every period; one that has not for so long does not run, or waits [s].
_SILENT_S = 1.0


class WatchServer(LocalServer):
    """The server of one session's page.

    Attributes:
        folder: Of the session.
    """

    def __init__(self, folder: Path, port: int) -> None:
        """Listen at a port of this machine, 0 for any free one.

        Raises:
            ConfigError: There is no session in the folder, or the port is taken.
        """
        self.folder = folder
        about(folder)
        super().__init__(port, _Handler)


def page_policy(page: bytes) -> str:
    """Return what a page may load: its own style, its own script and no other, and our data."""
    script = page.partition(b"<script>")[2].partition(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


class _Handler(LocalHandler):
    server: WatchServer
    policy = page_policy(_PAGE.read_bytes())

    def get(self, path: str, query: dict[str, str]) -> None:
        """Answer with the page, what the session is of, or what it logged from a byte on."""
        match path:
            case "/":
                self.send_page(_PAGE.read_bytes(), "text/html; charset=utf-8")
            case "/about":
                self.send(as_json(about(self.server.folder)), "application/json")
            case "/rows":
                start = query.get("from", "")
                data = rows(self.server.folder, int(start) if start.isdecimal() else None)
                self.send(as_json(data), "application/json")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def post(self, path: str, body: bytes) -> None:
        """Ask the loop for a safe action, or to go on."""
        if path != "/override":
            return self.refuse(HTTPStatus.NOT_FOUND, "there is nothing to ask for")
        try:
            override(self.server.folder, body.decode("ascii", "replace"))
        except RunError as error:
            return self.refuse(HTTPStatus.CONFLICT, str(error))
        self.send(b"{}", "application/json")
        return None


def about(folder: Path) -> dict[str, Any]:
    """Return what a session is of: its policy and robot, columns, limits and buttons.

    Raises:
        ConfigError: There is no session, or its files are damaged.
    """
    try:
        given = parse_json(read_plain_file(folder / "session.json", _LARGEST_ABOUT))
        robot = given["robot"]
        columns, _ = _header(folder)
        return {
            "folder": str(folder),
            "run": given["run"],
            "env": given["env"]["id"],
            "driver": given["driver"],
            "robot": robot["robot"],
            "hz": float(given["hz"]),
            "is_dry_run": bool(given["dry_run"]),
            "safe_action": given["safe_action"],
            "words": [*robot["safe_actions"], RELEASE],
            "columns": columns,
            "limits": _limits(robot, columns),
        }
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{printable(folder)} holds no session of `rlzoo-plus run-robot` that can be read: "
            f"{printable(error)}. Name the folder that run-robot has printed."
        ) from error


def rows(folder: Path, start: int | None) -> dict[str, Any]:
    """Return what a session logged from a byte on, and how it stands.

    Args:
        folder: Of the session.
        start: The byte, `next` of the answer before; None for what was logged last.
    """
    columns, first = _header(folder)
    size = (folder / LOG).stat().st_size
    begin = max(first, size - _LARGEST_PART if start is None else start)
    data = read_plain_part(folder / LOG, begin, _LARGEST_PART)
    if start is None and begin > first:
        # In the middle of a line.
        skipped = data.find(b"\n") + 1
        begin, data = begin + skipped, data[skipped:]
    whole = data[: data.rfind(b"\n") + 1]
    lines = [line.split(b",") for line in whole.splitlines()]
    return {
        "next": begin + len(whole),
        "rows": [[float(x) for x in line] for line in lines if len(line) == len(columns)],
        "events": _events(folder),
        "state": _state(folder),
    }


def _header(folder: Path) -> tuple[list[str], int]:
    """Return the names of the columns, and where the first line begins."""
    line, end, _ = read_plain_part(folder / LOG, 0, _LONGEST_HEADER).partition(b"\n")
    if not end:
        raise ValueError("its log has no header yet")
    return next(csv.reader([line.decode()])), len(line) + 1


def _limits(robot: Mapping[str, Any], columns: list[str]) -> dict[str, list[float | None]]:
    """Return the lowest and highest value of columns, of those with limits of the robot's own."""
    found: dict[str, list[float | None]] = {}
    prefixed = [(OF_JOINTS[k], s) for k, s in robot["sensors"].items() if k in OF_JOINTS]
    prefixed += [(f"command/{kind}", signal) for kind, signal in robot["commands"].items()]
    for prefix, signal in prefixed:
        for number, name in enumerate(signal["names"]):
            sides = [signal[side][number] if signal[side] else None for side in ("lower", "upper")]
            if f"{prefix}/{name}" in columns and sides != [None, None]:
                found[f"{prefix}/{name}"] = sides
    return found


def _events(folder: Path) -> list[dict[str, Any]]:
    """Return what happened last, the newest first."""
    found = []
    for line in reversed(read_plain_tail(folder / "events.jsonl", _EVENTS)):
        try:
            event = parse_json(line)
            found.append({key: event[key] for key in ("time", "kind", "text")})
        except (ValueError, LookupError, TypeError):
            continue
    return found[:_N_EVENTS]


def _state(folder: Path) -> str:
    """Return how a session stands, in a few words."""
    try:
        report = parse_json(read_plain_file(folder / "report.json", _LARGEST_PART))
        return f"ended: {report['ended']}"
    except FileNotFoundError:
        pass
    except (OSError, ValueError, LookupError, TypeError):
        return "ended"
    silent_s = time.time() - os.stat(folder / LOG).st_mtime
    return "running" if silent_s < _SILENT_S else f"no decision for {silent_s:.0f} s"
