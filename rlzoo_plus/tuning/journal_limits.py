"""How large the journal of a study may be before it is looked at: a stranger's may have no end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from rlzoo_plus.artifacts.untrusted import read_plain_lines
from rlzoo_plus.config.errors import ConfigError

LARGEST_BYTES = 2**29
# Optuna's codes of records, and how many are taken of each kind for one trial or study. It copies
# all earlier ones at each; a study's directory holds one study.
_STUDY = 0
_MOST = {_STUDY: 100, 2: 5_000, 3: 5_000, 5: 5_000, 7: 10_000, 8: 5_000, 9: 5_000}


def check_journal(path: Path) -> None:
    """Refuse a journal that would take minutes or all memory to read.

    Raises:
        ConfigError: It is far larger than any study's.
    """
    if path.is_symlink() or not path.is_file():
        # Whoever opens it says so.
        return
    if path.stat().st_size > LARGEST_BYTES:
        raise ConfigError(
            f"{path} is larger than {LARGEST_BYTES // 2**20} MiB: no study's journal."
        )
    seen: Counter[tuple[int, int]] = Counter()
    for line in read_plain_lines(path):
        kind = _kind(line)
        if kind is None:
            continue
        seen[kind] += 1
        if seen[kind] > _MOST[kind[0]]:
            raise ConfigError(
                f"{path} has more than {_MOST[kind[0]]} records of one kind for the same "
                "trial or study: no study's journal."
            )


def _kind(line: bytes) -> tuple[int, int] | None:
    """Return a record's code and what it is about, None if there is no limit for it."""
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    code = record.get("op_code") if isinstance(record, dict) else None
    if type(code) is not int or code not in _MOST:
        return None
    about = 0 if code == _STUDY else record.get("trial_id", record.get("study_id"))
    return (code, about) if type(about) is int else None
