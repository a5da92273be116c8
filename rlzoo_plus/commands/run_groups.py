"""The runs that a user names: runs, folders of runs, patterns, and stores."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from pathlib import Path

from rlzoo_plus.analysis.find_run import find_place
from rlzoo_plus.analysis.index import RunEntry, load_runs
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.cache import mirror_light_files
from rlzoo_plus.store.contract import open_store

RUNS_HELP = (
    "a run; a folder such as a sweep, for all runs in it; a study's name; a pattern; s3://, hf://"
)


def run_groups(names: Sequence[str]) -> dict[str, list[RunEntry]]:
    """Return the runs of each name.

    Raises:
        ConfigError: A name stands for no run, or one is given twice.
        RunError: A store cannot be reached.
    """
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{printable(twice)} is given twice. Name different runs.")
    groups = {}
    for name in names:
        paths = _paths(name)
        groups[name] = load_runs(paths)
        if not groups[name]:
            owner = next((p for p in paths[0].resolve().parents if RunDir(p).exists()), None)
            fix = f"It is part of a run: give {owner}." if owner else "Give a run or its folder."
            raise ConfigError(f"{name} holds no run. {fix}")
    return groups


def _paths(name: str) -> list[Path]:
    if name.startswith("s3://") and "/runs/" not in name:
        return [mirror_light_files(open_store(name))]
    if os.path.lexists(name):
        return [Path(name)]
    if glob.has_magic(name):
        found = sorted(Path(path) for path in glob.glob(name, recursive=True))
        if not found:
            raise ConfigError(f"{printable(name)} matches nothing. Name runs that exist.")
        return found
    from rlzoo_plus.tuning.study_folder import STUDIES

    if "/" not in name and (STUDIES / name / "study.json").is_file():
        return [STUDIES / name]
    return [find_place(name).path]
