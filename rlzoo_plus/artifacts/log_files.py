"""The append-only files of a run: how long each was at a checkpoint, and cut back to that."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.run_dir import RunDir

log = logging.getLogger(__name__)


def log_sizes(run_dir: RunDir) -> dict[str, int]:
    """Return the length in bytes of each log file, by its path in the run; all are on disk then."""
    sizes = {}
    for path in _log_files(run_dir):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            sizes[path.relative_to(run_dir.path).as_posix()] = os.fstat(file.fileno()).st_size
    return sizes


def rewind_logs(run_dir: RunDir, sizes: Mapping[str, int]) -> list[str]:
    """Cut the log files back, so that what is trained again is not recorded twice.

    Args:
        run_dir: The run; nothing writes to it now.
        sizes: From `log_sizes`; a file that is not named there came later and is removed.

    Returns:
        The files that are shorter than they were, so that records are missing.

    Raises:
        ValueError: The sizes are none.
    """
    check_sizes(sizes)
    found = {path.relative_to(run_dir.path).as_posix(): path for path in _log_files(run_dir)}
    for name, path in found.items():
        if name not in sizes:
            path.unlink()
        elif path.stat().st_size > sizes[name]:
            os.truncate(path, sizes[name])
    short = [
        name
        for name, size in sizes.items()
        if name not in found or found[name].stat().st_size < size
    ]
    for name in short:
        log.warning("%s is shorter than at the checkpoint: records are missing", name)
    return short


def check_sizes(sizes: Any) -> None:
    """Check what a checkpoint says of the lengths of the logs.

    Raises:
        ValueError: They are no lengths.
    """
    if not isinstance(sizes, Mapping) or not all(_is_size(size) for size in sizes.values()):
        raise ValueError("the sizes of its log files are none")


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _log_files(run_dir: RunDir) -> Iterator[Path]:
    files = [run_dir.metrics_file, run_dir.evaluations_file]
    files += sorted(run_dir.tensorboard.glob("events.out.*"))
    files += sorted(run_dir.monitor.glob("*.csv"))
    return (path for path in files if path.is_file() and not path.is_symlink())
