"""`rlzoo-plus watch-robot`: a page that shows a session of `run-robot`, with a stop button."""

from __future__ import annotations

import contextlib
from pathlib import Path

from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.control.attention import newest_session
from rlzoo_plus.control.live_page import WatchServer
from rlzoo_plus.local_pages import HOST

_PORT = 8502


def main(arguments: list[str]) -> int:
    """Serve the page until Ctrl-C; return the exit code."""
    parser = command_parser(
        "watch-robot",
        "Show a session of `rlzoo-plus run-robot` in the browser while it runs: what the robot "
        "reads, what the policy commands, rewards, limits and events; its buttons do what "
        "`rlzoo-plus override` does. It is served to this machine only, by a process of its own.",
        "outputs/robot/2026-11-26_18-00-00_4711",
    )
    add = parser.add_argument
    add("dir", nargs="?", type=Path, metavar="DIR", help="of the session; by default the one in "
        "outputs/robot that was begun last")  # fmt: skip
    add("--port", type=int, default=_PORT, help="default: %(default)s")
    options = parser.parse_args(arguments)
    server = WatchServer(options.dir or newest_session(), options.port)
    with server, contextlib.suppress(KeyboardInterrupt):
        # The port answers from here on.
        tell(f"http://{HOST}:{server.server_port}   (Ctrl-C ends it)")
        server.serve_forever()
    return 0
