"""Writes the pages with their data as files, which a browser opens without a server.

A page that is a file may load scripts beside it but read no JSON, so that data is scripts, too.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_synced
from rlzoo_plus.artifacts.untrusted import open_plain, printable
from rlzoo_plus.dashboard.runs_data import run_data, runs_data, videos
from rlzoo_plus.dashboard.series_data import AXES, clock_data, metrics_data, series_data
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.studies_data import study_data, sweep_data
from rlzoo_plus.dashboard.web_server import FILES, PAGE, PLOTLY, POLICY
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import as_json

_MARK = ".rlzoo-plus-dashboard"


def export_pages(source: Source, out: Path, plotly: Path) -> int:
    """Write the pages into a folder, new or of an earlier export; return the number of runs.

    Raises:
        ConfigError: The folder has something else in it.
    """
    if out.exists() and (not out.is_dir() or (os.listdir(out) and not (out / _MARK).is_file())):
        raise ConfigError(
            f"--export {printable(out)}: it is there and was not written by --export. "
            "Name a new folder."
        )
    everything = runs_data(source, all_of_them=True)
    if not everything["runs"]:
        raise ConfigError(f"{printable(source.folder)} has no runs to export.")
    for part in ("data", "videos"):
        shutil.rmtree(out / part, ignore_errors=True)
        (out / part).mkdir(parents=True)
    write_synced(out / _MARK, b"")
    for name in FILES:
        data = (PAGE / name).read_bytes()
        if name == "index.html":
            policy = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
            data = data.replace(b"{{token}}", b"").replace(
                b"<title>", f"{policy}\n<title>".encode()
            )
        write_synced(out / name, data)
    shutil.copyfile(plotly, out / PLOTLY)
    _write(out, "runs", everything)
    _write(out, "metrics", metrics_data(source))
    for parent in {run["parent"] for run in everything["runs"] if run["kind"] == "sweep"}:
        _write(out, f"sweep-{parent}", sweep_data(source, parent))
    for study in everything["studies"]:
        _write(out, f"study-{study['id']}", study_data(source, study["id"]))
    for run in everything["runs"]:
        _write_run(source, out, run["id"])
    return len(everything["runs"])


def _write_run(source: Source, out: Path, run_id: str) -> None:
    details = run_data(source, run_id)
    series = {name: series_data(source, [run_id], name).get(run_id) for name in details["metrics"]}
    details["series"] = {name: numbers for name, numbers in series.items() if numbers}
    details["clock"] = {axis: clock_data(source, [run_id], axis).get(run_id) for axis in AXES}
    _write(out, f"run-{run_id}", details)
    for path in videos(source.directory(run_id)):
        (out / "videos" / run_id).mkdir(exist_ok=True)
        with open_plain(path) as file, (out / "videos" / run_id / path.name).open("wb") as copy:
            shutil.copyfileobj(file, copy)


def _write(out: Path, name: str, data: Any) -> None:
    text = f"receive({json.dumps(name)},".encode() + as_json(data) + b");\n"
    write_synced(out / "data" / f"{name}.js", text)
