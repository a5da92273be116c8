"""`rlzoo-plus dashboard`: shows runs in the browser, or writes the pages as files."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import LONGEST_LINE, printable
from rlzoo_plus.commands.runs import folder_of
from rlzoo_plus.commands.typed import command_parser, tell
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.static_export import export_pages
from rlzoo_plus.dashboard.web_server import DashboardServer, plotly_file
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import HOST
from rlzoo_plus.store.cache import cached_run

_PORT = 8501


def main(arguments: list[str]) -> int:
    """Serve the pages until Ctrl-C, or write them."""
    parser = command_parser(
        "dashboard",
        "Show the runs below a folder in the browser: what runs now, sweeps, the best by task; "
        "curves over seeds, settings, videos, studies; tags and notes. It is served to this "
        "machine only and sends nothing anywhere. Needs the extra `dashboard`.",
        "outputs/sweeps/default",
    )
    add = parser.add_argument
    add("dir", nargs="?", metavar="DIR", help=f"a folder, or s3://... (default: {OUTPUTS})")
    add("--port", type=int, default=_PORT, help="default: %(default)s")
    add("--export", type=Path, metavar="DIR", help="write the pages as files, to open without it")
    options = parser.parse_args(arguments)
    plotly = plotly_file()
    source = source_of(options.dir)
    if options.export is not None:
        count = export_pages(source, options.export, plotly)
        tell(f"{printable(options.export / 'index.html', LONGEST_LINE)}   ({count} runs)")
        return 0
    with (
        DashboardServer(source, options.port, plotly) as server,
        contextlib.suppress(KeyboardInterrupt),
    ):
        # Runs are read already while the browser starts.
        threading.Thread(target=source.runs, daemon=True).start()
        # The port answers from here on.
        tell(f"http://{HOST}:{server.server_port}   (Ctrl-C ends it)")
        server.serve_forever()
    return 0


def source_of(name: str | None) -> Source:
    """Return the runs in a folder, or in a store that a URL names."""
    folder, url = folder_of(name)
    if not folder.is_dir():
        raise ConfigError(f"{printable(folder)} is not a folder. Give one with runs in it.")
    if url is None:
        return Source(folder)
    return Source(folder, url, lambda: folder_of(name), lambda run: cached_run(f"{url}/{run}"))
