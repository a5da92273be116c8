"""The logs of a run at a resume: cut back to the checkpoint, and compared with what comes again.

A run that goes on from its newest checkpoint makes the rows after it once more. If one of them
comes out otherwise, the run is not the one that would have been without the interruption. Rows
are compared without what the clock decides.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import parse_json, printable, read_plain_file, read_plain_part

log = logging.getLogger(__name__)
# Of all logs together; what is beyond is not compared.
_MOST_BYTES = 2**23
_LARGEST_FILE_BYTES = 2 * _MOST_BYTES
_LONGEST_VALUE = 60
# Metrics that are measured with a clock, also by a callback of a user's.
_OF_THE_CLOCK = re.compile(r"^(time|perf|system)/|(time|fps|seconds|_s|_ms)$")
# Of a row in monitor/: return, length, time.
_TIME_COLUMN = 2


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


@dataclass
class _Cut:
    """What one log held behind a byte at which it was cut.

    Attributes:
        offset: Where the log was cut [bytes]; the rows made again begin there.
        rows: The rows that were there, comparable, in their order.
    """

    offset: int
    rows: list[str]


@dataclass
class CutRows:
    """The rows of a run that are to come again.

    Attributes:
        run_dir: The run.
        since: Environment steps of the checkpoint after which the first of them came.
        difference: What came out otherwise, None as long as nothing did.
    """

    run_dir: RunDir
    since: int
    difference: str | None = None
    _logs: dict[str, _Cut] = field(default_factory=dict)

    @classmethod
    def keep(cls, run_dir: RunDir, sizes: Mapping[str, int], step: int) -> CutRows:
        """Take down the rows that are about to be cut off, and write them to the disk.

        Rows of an earlier interruption that were not made again before this one stay.

        Args:
            run_dir: The run; nothing writes to it now.
            sizes: The length that each log had at the checkpoint [bytes].
            step: Environment steps of the checkpoint.
        """
        kept = cls._read(run_dir) or cls(run_dir, step)
        paths = _row_files(run_dir)
        for name, path in paths.items() if kept.difference is None else ():
            size = sizes.get(name, 0)
            before = kept._logs.get(name, _Cut(size, []))
            kept._logs[name] = kept._joined(name, path, size, before, _MOST_BYTES // len(paths))
        if not any(cut.rows for cut in kept._logs.values()):
            kept.since = step
        kept._write()
        return kept

    def compare(self, *, is_over: bool = False) -> str | None:
        """Compare the rows made again so far; return what differs, or None.

        Args:
            is_over: Whether the run makes no more rows.
        """
        if self.difference is not None or not self._logs:
            return self.difference
        paths = _row_files(self.run_dir)
        for name, cut in self._logs.items():
            if cut.rows:
                lines = _lines(paths[name], cut.offset, _MOST_BYTES) if name in paths else []
                self._compare_log(name, cut, lines, is_over=is_over)
        if self.difference is not None or not any(cut.rows for cut in self._logs.values()):
            self._logs = {}
            self._write()
        return self.difference

    def _compare_log(self, name: str, cut: _Cut, lines: list[bytes], *, is_over: bool) -> None:
        made = [_comparable(name, line) for line in lines[: len(cut.rows)]]
        self._note(name, cut.rows, made)
        cut.offset += sum(len(line) + 1 for line in lines[: len(made)])
        cut.rows = cut.rows[len(made) :]
        if is_over and cut.rows and self.difference is None:
            self.difference = f"{name}: a row did not come again: {_short(cut.rows[0])}"

    def _joined(self, name: str, path: Path, size: int, before: _Cut, most: int) -> _Cut:
        """Return the rows behind `size`: those of earlier interruptions, then those of the log."""
        if size - before.offset > most:
            before = _Cut(size, [])
        start = min(size, before.offset)
        lines = _lines(path, start, most)
        made = [_comparable(name, line) for line in lines]
        rows = made[: _count(lines, before.offset - start)] + before.rows
        self._note(name, rows, made)
        return _Cut(size, (rows + made[len(rows) :])[_count(lines, size - start) :])

    def _note(self, name: str, expected: list[str], made: list[str]) -> None:
        for old, new in zip(expected, made, strict=False):
            if old != new and self.difference is None:
                self.difference = f"{name}: {_describe(old, new)}"

    @classmethod
    def _read(cls, run_dir: RunDir) -> CutRows | None:
        """Read what an interruption before left; whatever is damaged is as if it was not there."""
        try:
            data = parse_json(read_plain_file(run_dir.cut_rows_file, _LARGEST_FILE_BYTES))
            difference = data["difference"]
            logs = {
                str(name): _Cut(_number(cut["offset"]), [str(row) for row in cut["rows"]])
                for name, cut in data["logs"].items()
            }
            reason = None if difference is None else printable(difference)
            return cls(run_dir, _number(data["since"]), reason, logs)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s is damaged: %s", run_dir.cut_rows_file, printable(error))
            return None

    def _write(self) -> None:
        logs = {n: {"offset": c.offset, "rows": c.rows} for n, c in self._logs.items() if c.rows}
        try:
            if not logs and self.difference is None:
                self.run_dir.cut_rows_file.unlink(missing_ok=True)
                return
            data = {"since": self.since, "difference": self.difference, "logs": logs}
            write_atomic(self.run_dir.cut_rows_file, json.dumps(data) + "\n")
        except OSError as error:
            log.warning("the rows cut off cannot be compared after another stop: %s", error)


def _is_size(value: Any) -> bool:
    return type(value) is int and value >= 0


def _log_files(run_dir: RunDir) -> Iterator[Path]:
    files = [run_dir.metrics_file, run_dir.evaluations_file]
    files += sorted(run_dir.tensorboard.glob("events.out.*"))
    files += sorted(run_dir.monitor.glob("*.csv"))
    return (path for path in files if path.is_file() and not path.is_symlink())


def _row_files(run_dir: RunDir) -> dict[str, Path]:
    """Return the logs that hold rows of text, by their path in the run."""
    files = [run_dir.metrics_file, run_dir.evaluations_file, *run_dir.monitor.glob("*.csv")]
    return {path.relative_to(run_dir.path).as_posix(): path for path in sorted(files)}


def _lines(path: Path, start: int, most: int) -> list[bytes]:
    """Return the whole lines behind a byte of a file; a last one without an end is torn."""
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
    """Return a row without what the clock decides."""
    text = line.decode("utf-8", "replace")
    if name.endswith(".csv"):
        columns = text.split(",")
        return (
            ""
            if text.startswith("#")
            else ",".join(columns[:_TIME_COLUMN] + columns[_TIME_COLUMN + 1 :])
        )
    record = _record(text)
    if record is None:
        return text
    record.pop("ts", None)
    if _OF_THE_CLOCK.search(str(record.get("key"))):
        record.pop("value", None)
    return json.dumps(record)


def _record(text: str) -> dict[str, Any] | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _describe(old: str, new: str) -> str:
    """Return what differs between two rows, in short."""
    before, after = _record(old), _record(new)
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


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no number of bytes or steps")
    return value
