"""The page on which a person plays a task with keys or a gamepad."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import parse_json
from rlzoo_plus.control.live_page import page_policy
from rlzoo_plus.local_pages import LocalHandler, LocalServer, as_json
from rlzoo_plus.teleop.hand import Hand

_PAGE = Path(__file__).with_suffix(".html")


class TeleopServer(LocalServer):
    """The server of the page.

    Attributes:
        hand: Who plays.
    """

    def __init__(self, port: int, hand: Hand) -> None:
        """Listen at a port of this machine, 0 for any free one.

        Raises:
            ConfigError: The port is taken.
        """
        self.hand = hand
        super().__init__(port, _Handler)


class _Handler(LocalHandler):
    server: TeleopServer
    policy = f"{page_policy(_PAGE.read_bytes())}; img-src 'self'"

    def get(self, path: str, query: dict[str, str]) -> None:
        """Answer with the page, the controls, or the newest picture."""
        del query
        match path.split("/")[1:]:
            case [""]:
                self.send_page(_PAGE.read_bytes(), "text/html; charset=utf-8")
            case ["controls"]:
                self.send(as_json(self.server.hand.controls.as_data()), "application/json")
            case ["picture", _]:
                self.send(self.server.hand.picture(), "image/jpeg")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def post(self, path: str, body: bytes) -> None:
        """Take what the controls say, or a request."""
        hand = self.server.hand
        match path:
            case "/values":
                self.send(as_json(hand.move(parse_json(body))), "application/json")
            case "/request":
                hand.request(parse_json(body))
                self.send(b"{}", "application/json")
            case _:
                self.refuse(HTTPStatus.NOT_FOUND, "there is nothing to write")
