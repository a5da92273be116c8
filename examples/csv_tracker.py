"""A tracker: every number of a run in one CSV file, and how the run ended in a JSON file beside it.

Use, in this folder:

    rlzoo-plus train tracker.name=csv_tracker.CsvTracker tracker.folder=table
"""

import csv
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from rlzoo_plus.tracking.tracker import attachments, flatten


class CsvTracker:
    """Files a run in a folder below its own directory."""

    class Settings(BaseModel):
        """Its keys below `tracker`."""

        folder: str = Field(default="csv", pattern=r"^\w+$")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._folder: Path | None = None

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the files; those of a run that goes on are appended to."""
        self._run_dir, self._folder = run_dir, run_dir / self._settings.folder
        self._folder.mkdir(parents=True, exist_ok=True)
        self._end({"state": "running", "config": config})

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Append a row for each number."""
        with (self._folder / "metrics.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([step, name, value] for name, value in metrics.items())

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Write down the outcome and what files belong to it."""
        names = [name.as_posix() for _, name in attachments(files, self._run_dir)]
        summary = flatten(result, "/", "result/")
        self._end({"state": "finished", "summary": summary, "files": names})

    def fail(self, message: str) -> None:
        """Write down why the run broke off."""
        if self._folder is not None:
            self._end({"state": "failed", "error": message})

    def _end(self, values: dict[str, Any]) -> None:
        (self._folder / "run.json").write_text(json.dumps(values), encoding="utf-8")
