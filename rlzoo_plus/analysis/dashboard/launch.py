"""Starts the page's server, for this machine only and without telemetry."""

from __future__ import annotations

import importlib.util
import os
import sys
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
    """Return the command of the server for the runs in a folder.

    Raises:
        ConfigError: Streamlit is not installed.
    """
    if importlib.util.find_spec("streamlit") is None:
        raise ConfigError("dashboard needs Streamlit: pip install 'rlzoo-plus[dashboard]'.")
    app = Path(__file__).with_name("app.py")
    settings = [f"--{k}={v}" for k, v in {**_SETTINGS, "server.port": port}.items()]
    shown = str(folder.absolute())
    return [
        sys.executable,
        "-m",
        "rlzoo_plus.analysis.dashboard.server",
        "run",
        str(app),
        *settings,
        "--",
        shown,
    ]


def serve(folder: Path, port: int) -> NoReturn:
    """Become the server; Ctrl-C ends it."""
    command = command_of(folder, port)
    os.execv(command[0], command)
