"""Starts the page's server, for this machine only and without telemetry; and is its process.

Beside Streamlit a thread reads the runs already: a page needs pandas and the index of runs, which
take longer than the server itself. They are ready when the browser asks, or nearly so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import NoReturn

from rlzoo_plus.errors import ConfigError

_SETTINGS = {
    "server.address": "127.0.0.1",
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "server.runOnSave": "false",
    "browser.gatherUsageStats": "false",
    "browser.serverAddress": "127.0.0.1",
    "client.toolbarMode": "minimal",
    "global.developmentMode": "false",
}


def command_of(folder: Path, port: int) -> list[str]:
    """Return the command of the server for the runs in a folder."""
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError("dashboard needs Streamlit: pip install 'rlzoo-plus[dashboard]'.")
    app = str(Path(__file__).with_name("app.py"))
    settings = [f"--{k}={v}" for k, v in {**_SETTINGS, "server.port": port}.items()]
    module = "rlzoo_plus.analysis.dashboard.launch"
    return [sys.executable, "-m", module, "run", app, *settings, "--", str(folder.absolute())]


def serve(folder: Path, port: int) -> NoReturn:
    """Become the server; Ctrl-C ends it."""
    command = command_of(folder, port)
    os.execv(command[0], command)


def _prepare(folder: Path) -> None:
    """Import and read what the first page needs; what fails here, fails again in the page."""
    with contextlib.suppress(ConfigError, OSError, ImportError):
        import pandas as pd  # type: ignore[import-untyped]

        from rlzoo_plus.analysis.dashboard import view

        pd.DataFrame(view.table(view.shared_runs(folder).look(), folder))


def main() -> None:
    """Run Streamlit with this process's arguments; the last one is the folder."""
    threading.Thread(target=_prepare, args=[Path(sys.argv[-1])], daemon=True).start()
    from streamlit.web.cli import main as streamlit

    streamlit()


if __name__ == "__main__":
    main()
