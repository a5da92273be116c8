"""The page that asks which of two clips is better."""

from __future__ import annotations

import threading
from http import HTTPStatus
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.untrusted import parse_json, read_plain_file
from rlzoo_plus.control.live_page import page_policy
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import LocalHandler, LocalServer, as_json
from rlzoo_plus.preferences.clip_videos import ClipVideos
from rlzoo_plus.preferences.clips import Clips
from rlzoo_plus.preferences.preference_folder import Preferences
from rlzoo_plus.preferences.raters import PERSON

_PAGE = Path(__file__).with_suffix(".html")
_LARGEST_VIDEO = 2**27


class ClipServer(LocalServer):
    """The server of the page that asks about clips."""

    def __init__(
        self, port: int, preferences: Preferences, clips: Clips, videos: ClipVideos
    ) -> None:
        """Listen at a port of this machine, 0 for any free one.

        Raises:
            ConfigError: The port is taken.
        """
        self.preferences, self.clips, self.videos = preferences, clips, videos
        self.lock = threading.Lock()
        super().__init__(port, _Handler)

    def question(self, wanted: int | None) -> dict[str, Any]:
        """Return the pair to ask about: the one wanted, or the first without an answer."""
        pairs = self.clips.pairs.tolist()
        with self.lock:
            left = self.preferences.unanswered(self.clips)
        told: dict[str, Any] = {"of": len(pairs), "answered": len(pairs) - len(left)}
        pair = wanted if wanted is not None else next(iter(left), None)
        if pair is None:
            return {**told, "pair": None}
        if not 0 <= pair < len(pairs):
            raise ConfigError("there is no such pair.")
        # Those of the next question are drawn while this one is looked at.
        asked = [self.videos.ask(clip) for clip in pairs[pair]]
        for clip in pairs[pair + 1] if pair + 1 < len(pairs) else ():
            self.videos.ask(clip)
        for one in asked:
            one.result()
        given = self.preferences.given.get((self.clips.digest, pair))
        return {**told, "pair": pair, "answer": given, "clips": pairs[pair]}


class _Handler(LocalHandler):
    server: ClipServer
    policy = f"{page_policy(_PAGE.read_bytes())}; img-src 'self'"

    def get(self, path: str, query: dict[str, str]) -> None:
        """Answer with the page, a question, or a video."""
        match path.split("/")[1:]:
            case [""]:
                self.send_page(_PAGE.read_bytes(), "text/html; charset=utf-8")
            case ["question"]:
                self.send(as_json(self.server.question(_number(query.get("pair", "")))),
                          "application/json")  # fmt: skip
            case ["video", name]:
                clip = _number(name)
                if clip is None or clip >= len(self.server.clips.clips):
                    raise ConfigError("there is no such clip.")
                file = self.server.videos.ask(clip).result()
                self.send(read_plain_file(file, _LARGEST_VIDEO), "image/gif")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def post(self, path: str, body: bytes) -> None:
        """Write an answer."""
        if path != "/answer":
            return self.refuse(HTTPStatus.NOT_FOUND, "there is nothing to write")
        given = parse_json(body)
        if not isinstance(given, dict) or given.keys() != {"pair", "answer"}:
            raise ValueError("it is no answer")
        server = self.server
        with server.lock:
            server.preferences.answer(server.clips, given["pair"], given["answer"], PERSON)
        self.send(b"{}", "application/json")
        return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else None
