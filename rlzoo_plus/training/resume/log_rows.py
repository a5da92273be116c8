"""The logs of a resumed run: truncated to the checkpoint, and compared with what is logged again.

A run that resumes from its newest checkpoint logs the later rows once more. If one of them differs,
the run is not the one that it would have been without the stop. Timings are not compared.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, PrivateAttr

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.records import parse_record
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import parse_json, printable, read_plain_file, read_plain_part

log = logging.getLogger(__name__)
# Of all logs together; rows beyond are not compared.
_MOST_BYTES = 2**23
_LARGEST_FILE_BYTES = 2 * _MOST_BYTES
_LONGEST_VALUE = 60
# Metrics that are timings, also those of a user's callback.
TIMING = re.compile(r"^(time|perf|system)/|(time|fps|seconds|_s|_ms)$")
# Of a row in monitor/: return, length, time.
_TIME_COLUMN = 2
_Size = Annotated[int, Field(strict=True, ge=0)]


def log_sizes(run_dir: RunDir) -> dict[str, int]:
    """Make all log files durable, and return their sizes [bytes] by path in the run."""
    sizes = {}
    for name, path in _log_files(run_dir).items():
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            sizes[name] = os.fstat(file.fileno()).st_size
    return sizes


def rewind_logs(run_dir: RunDir, sizes: Mapping[str, int]) -> list[str]:
    """Truncate the log files, so that steps trained again are not recorded twice.

    Args:
        run_dir: The run; nothing writes to it now.
        sizes: From `log_sizes`; a file that it does not name is newer and removed.

    Returns:
        The files that are shorter than they were, so that records are missing.

    Raises:
        ValueError: `sizes` is malformed.
    """
    _check_sizes(sizes)
    found = _log_files(run_dir)
    for name, path in found.items():
        if name not in sizes:
            path.unlink()
        elif path.stat().st_size > sizes[name]:
            os.truncate(path, sizes[name])
    short = [n for n, size in sizes.items() if n not in found or found[n].stat().st_size < size]
    for name in short:
        log.warning("%s is shorter than at the checkpoint: records are missing", name)
    return short


class _CutLog(BaseModel):
    """The rows that were cut off one log, in their order, and where they begin again [bytes]."""

    offset: _Size
    rows: list[str]


class CutRows(BaseModel):
    """The rows of a run that a resume cut off and that are to be logged again."""

    since: _Size  # environment steps of the checkpoint before the oldest of them
    difference: Annotated[str, AfterValidator(printable)] | None = None  # of the first that differs
    logs: dict[str, _CutLog] = Field(default_factory=dict)
    _run_dir: RunDir = PrivateAttr()

    @classmethod
    def keep(cls, run_dir: RunDir, sizes: Mapping[str, int], step: int) -> CutRows:
        """Write the rows that are about to be cut off to the disk.

        Rows of an earlier stop that were not logged again before this one stay.

        Args:
            run_dir: The run; nothing writes to it now.
            sizes: The size of each log at the checkpoint [bytes].
            step: Environment steps of the checkpoint.

        Raises:
            ValueError: `sizes` is malformed.
        """
        _check_sizes(sizes)
        kept = cls(since=step)
        try:
            # A damaged file is the same as none.
            data = parse_json(read_plain_file(run_dir.cut_rows_file, _LARGEST_FILE_BYTES))
            kept = cls.model_validate(data)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("%s is damaged: %s", run_dir.cut_rows_file, printable(error))
        kept._run_dir = run_dir
        paths = _row_files(run_dir)
        for name, path in paths.items() if kept.difference is None else ():
            kept._extend(name, path, sizes.get(name, 0), _MOST_BYTES // len(paths))
        if not any(cut.rows for cut in kept.logs.values()):
            kept.since = step
        kept._write()
        return kept

    def compare(self, *, is_over: bool = False) -> str | None:
        """Compare the rows logged again so far, or all if the run is over; return a difference."""
        if self.difference is not None or not self.logs:
            return self.difference
        paths = _row_files(self._run_dir)
        for name, cut in self.logs.items():
            lines = _lines(paths[name], cut.offset, _MOST_BYTES) if name in paths else []
            lines = lines[: len(cut.rows)]
            self._note(name, cut.rows, [_comparable(name, line) for line in lines])
            cut.offset += sum(len(line) + 1 for line in lines)
            cut.rows = cut.rows[len(lines) :]
            if is_over and cut.rows and self.difference is None:
                self.difference = f"{name}: a row is missing now: {_short(cut.rows[0])}"
        if self.difference is not None or not any(cut.rows for cut in self.logs.values()):
            self.logs = {}
            self._write()
        return self.difference

    def _extend(self, name: str, path: Path, size: int, most: int) -> None:
        """Keep the rows of a log behind `size`: those of earlier stops, then those of the file."""
        before = self.logs.get(name)
        if before is None or size - before.offset > most:
            before = _CutLog(offset=size, rows=[])
        start = min(size, before.offset)
        lines = _lines(path, start, most)
        logged = [_comparable(name, line) for line in lines]
        rows = logged[: _count(lines, before.offset - start)] + before.rows
        self._note(name, rows, logged)
        rows += logged[len(rows) :]
        self.logs[name] = _CutLog(offset=size, rows=rows[_count(lines, size - start) :])

    def _note(self, name: str, expected: list[str], logged: list[str]) -> None:
        for old, new in zip(expected, logged, strict=False):
            if old != new and self.difference is None:
                self.difference = f"{name}: {_describe(old, new)}"

    def _write(self) -> None:
        self.logs = {name: cut for name, cut in self.logs.items() if cut.rows}
        try:
            if self.logs or self.difference is not None:
                write_atomic(self._run_dir.cut_rows_file, self.model_dump_json() + "\n")
            else:
                self._run_dir.cut_rows_file.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the rows cut off cannot be compared after another stop: %s", error)


def copy_logs(source: RunDir, target: RunDir, sizes: Mapping[str, int]) -> None:
    """Copy the log files as they were at a checkpoint to a run that has none yet.

    Raises:
        OSError: One cannot be read or written.
        ValueError: `sizes` is malformed.
    """
    _check_sizes(sizes)
    for name, path in _log_files(source).items():
        if name in sizes:
            write_atomic(target.path / name, read_plain_part(path, 0, sizes[name]))


def _check_sizes(sizes: Any) -> None:
    is_mapping = isinstance(sizes, Mapping)
    if not is_mapping or not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise ValueError("the sizes of its log files are malformed")


def _log_files(run_dir: RunDir) -> dict[str, Path]:
    """Return the existing log files by their path in the run."""
    files = [run_dir.metrics_file, run_dir.evaluations_file, run_dir.actions_file]
    files += sorted(run_dir.tensorboard.glob("events.out.*"))
    files += sorted(run_dir.monitor.glob("*.csv"))
    plain = [path for path in files if path.is_file() and not path.is_symlink()]
    return {path.relative_to(run_dir.path).as_posix(): path for path in plain}


def _row_files(run_dir: RunDir) -> dict[str, Path]:
    """Return the logs that hold rows of text."""
    logs = _log_files(run_dir)
    return {name: path for name, path in logs.items() if path.suffix in (".jsonl", ".csv")}


def _lines(path: Path, start: int, most: int) -> list[bytes]:
    """Return the whole lines behind a byte of a file; a last line without an end is torn."""
    try:
        return read_plain_part(path, start, most).split(b"\n")[:-1]
    except (OSError, ValueError):
        return []


def _count(lines: list[bytes], n_bytes: int) -> int:
    """Return how many lines begin within so many bytes."""
    count, at = 0, 0
    while count < len(lines) and at < n_bytes:
        at += len(lines[count]) + 1
        count += 1
    return count


def _comparable(name: str, line: bytes) -> str:
    """Return a row without timings."""
    text = line.decode("utf-8", "replace")
    if name.endswith(".csv"):
        columns = text.split(",")
        del columns[_TIME_COLUMN : _TIME_COLUMN + 1]
        return "" if text.startswith("#") else ",".join(columns)
    record = parse_record(text)
    if record is None:
        return text
    record.pop("ts", None)
    if TIMING.search(str(record.get("key"))):
        record.pop("value", None)
    return json.dumps(record)


def _describe(old: str, new: str) -> str:
    """Return the difference between two rows, in short."""
    before, after = parse_record(old), parse_record(new)
    if before is None or after is None:
        return f"a row was {_short(old)}, is {_short(new)}"
    changed = [key for key in before | after if before.get(key) != after.get(key)]
    # Of an evaluation, rather the mean return than the list of returns.
    first = min(changed, key=lambda key: isinstance(before.get(key), list), default="step")
    what = f" of {before['key']}" if "key" in before and first != "key" else ""
    where = f" at step {before.get('step')}" if first != "step" else ""
    was, now = _short(before.get(first)), _short(after.get(first))
    return printable(f"{first}{what}{where} was {was}, is {now}")


def _short(value: Any) -> str:
    return printable(value, _LONGEST_VALUE)
