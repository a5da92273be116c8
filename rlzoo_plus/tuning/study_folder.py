"""Where studies are, and the names of the files in one."""

from __future__ import annotations

from pathlib import Path

from rlzoo_plus.errors import ConfigError

STUDIES = Path("outputs") / "studies"
NAME = "study.json"
JOURNAL = "journal.log"
REPORTS = ("report.json", "report.md")


def study_folder(name: str) -> Path:
    """Return the directory of a study: a name lies below outputs/studies, a path is a path."""
    if "/" not in name and name not in (".", ".."):
        return STUDIES / name
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"hpo.study={name}: {error}") from error
