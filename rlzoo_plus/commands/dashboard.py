"""`rlzoo-plus dashboard`: shows runs in the browser."""

from __future__ import annotations

import socket

from rlzoo_plus.analysis.dashboard.launch import serve
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.runs import folder_of
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.errors import ConfigError

_PORT = 8501


def main(arguments: list[str]) -> int:
    """Serve the page until Ctrl-C."""
    parser = command_parser(
        "dashboard",
        "Show the runs below a folder in the browser: filter, curves side by side, progress of "
        "runs that train, videos, settings that differ. It is served to this machine only, sends "
        "nothing anywhere and changes nothing. Needs the extra `dashboard`.",
        "outputs/sweeps/default",
    )
    add = parser.add_argument
    add("dir", nargs="?", metavar="DIR", help=f"a folder, or s3://... (default: {OUTPUTS})")
    add("--port", type=int, default=_PORT, help="default: %(default)s")
    options = parser.parse_args(arguments)
    if not 0 < options.port < 2**16:
        raise ConfigError(f"--port {options.port}: must be from 1 to 65535.")
    folder, _ = folder_of(options.dir)
    if not folder.is_dir():
        raise ConfigError(f"{printable(folder)} is not a folder. Give one with runs in it.")
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", options.port)) == 0:
            raise ConfigError(
                f"--port {options.port} is taken. Choose another, e.g. --port {options.port + 1}."
            )
    tell(f"http://127.0.0.1:{options.port}   (Ctrl-C ends it)")
    serve(folder, options.port)
