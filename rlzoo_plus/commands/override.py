"""`rlzoo-plus override`: take a running robot out of its policy's hands, from another terminal."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.control.attention import RELEASE, check, newest_session, override
from rlzoo_plus.control.gamepad import DEVICE, presses


def main(arguments: list[str]) -> int:
    """Ask the session to be safe, or to go on; return the exit code."""
    parser = command_parser(
        "override",
        "Let the robot of a running `rlzoo-plus run-robot` hold its position, damp its motion or "
        "stop its motors, in place of the policy's next decision; `release` goes on with the next "
        "episode. Returns when the loop has obeyed; exit code 1: no loop runs there.",
        "stop",
    )
    add = parser.add_argument
    add("words", nargs="+", metavar="[DIR] hold|damp|stop|release", help="DIR: of the session; "
        "by default the one in outputs/robot that was begun last")  # fmt: skip
    add("--gamepad", nargs="?", type=Path, const=DEVICE, metavar="DEVICE",
        help=f"do it at each press of a gamepad's button, or unplugging it; {DEVICE}")  # fmt: skip
    options = parser.parse_args(arguments)
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
