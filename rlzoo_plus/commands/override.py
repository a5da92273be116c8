"""`rlzoo-plus override`: take a robot or a server out of its policy's hands, from elsewhere."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.control.attention import RELEASE, check, newest_session, override
from rlzoo_plus.control.gamepad import DEVICE, presses
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.serving.override_client import override_server

_SCHEMES = ("http://", "https://")


def main(arguments: list[str]) -> int:
    """Ask the session or the server for an override, or to go on; return the exit code."""
    parser = command_parser(
        "override",
        "Let the robot of a running `rlzoo-plus run-robot` hold its position, damp its motion or "
        "stop its motors, in place of the policy's next decision; `release` goes on with the next "
        "episode. Returns when the loop has obeyed; exit code 1: no loop runs there. With the URL "
        "of `rlzoo-plus serve`, the server answers so from the next decision on: hold (the last "
        'action), stop (zeros), action "[...]"; until --for is over or `release`.',
        "stop",
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="[DIR|URL] hold|damp|stop|action|release", help="DIR: of the "
        "session; by default the one in outputs/robot that was begun last")  # fmt: skip
    add("--for", type=positive(float), metavar="S", dest="seconds",
        help="with a URL: seconds until it expires (default 60)")  # fmt: skip
    add(
        "--session",
        metavar="ID",
        help="with a URL: for one session alone, by its id or the name that its client gave it",
    )
    add("--gamepad", nargs="?", type=Path, const=DEVICE, metavar="DEVICE",
        help=f"do it at each press of a gamepad's button, or unplugging it; {DEVICE}")  # fmt: skip
    options = parser.parse_args(arguments)
    place, *rest = options.words
    if place.startswith(_SCHEMES):
        if options.gamepad is not None:
            parser.error("--gamepad is for a robot: give no URL")
        return _server(place, rest, options, parser)
    if options.seconds is not None or options.session is not None or "action" in options.words:
        parser.error("action, --for and --session are for a server: give its URL first")
    if len(options.words) > 2:
        parser.error("give a folder and one word")
    *folders, word = options.words
    folder = Path(folders[0]) if folders else newest_session()
    if options.gamepad is None:
        override(folder, word)
        tell(f"the loop has obeyed: {word}")
        return 0
    if word == RELEASE:
        parser.error("a gamepad does not release: give hold, damp or stop")
    check(folder, word)
    pressed = presses(options.gamepad)
    tell(f"any button of {printable(options.gamepad)}: {word}   (Ctrl-C ends it)")
    with contextlib.suppress(KeyboardInterrupt):
        for what in pressed:
            override(folder, word)
            tell(f"{what}: the loop has obeyed: {word}")
    return 0


def _server(
    url: str, words: list[str], options: argparse.Namespace, parser: argparse.ArgumentParser
) -> int:
    if len(words) != (2 if words[:1] == ["action"] else 1):
        parser.error('give one word after the URL; action takes the action too: action "[0.5]"')
    asked = {"word": words[0]}
    if len(words) == 2:
        try:
            asked["action"] = json.loads(words[1])
        except (ValueError, RecursionError):
            raise ConfigError(
                f"{printable(words[1])} is no action. Write it as JSON: [0.1, -0.2], or 2."
            ) from None
    given = {"for_s": options.seconds, "session": options.session}
    taken = override_server(url, asked | {k: v for k, v in given.items() if v is not None})
    until = "" if words[0] == "release" else f", for {taken['for_s']:g} s unless renewed"
    tell(f"the server has taken it: {words[0]}{until}")
    return 0
