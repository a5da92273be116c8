"""Reads a log of numbers with named columns: a CSV."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlzoo_plus.artifacts.untrusted import one_line, printable, read_plain_file
from rlzoo_plus.errors import ConfigError

_LARGEST_BYTES = 2**27


def read_numbers(path: Path) -> tuple[list[str], NDArray[np.float64]]:
    """Return the names of the columns of a CSV, and its rows.

    Raises:
        ConfigError: It is no such file, or holds something else than numbers.
    """
    where = printable(path)
    try:
        text = read_plain_file(path, _LARGEST_BYTES).decode("utf-8-sig")
        head, _, body = text.partition("\n")
        names = [name.strip() for name in next(csv.reader([head]), [])]
        rows = np.zeros((0, 0))
        if body.strip():
            rows = np.loadtxt(StringIO(body), delimiter=",", ndmin=2, comments=None)
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(f"{where}: no such file. Give a CSV, or saved episodes.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where} is no text. Give a CSV with a line of column names.") from None
    except (OSError, ValueError, csv.Error) as error:
        raise ConfigError(f"{where} is no CSV of numbers: {one_line(error)}.") from error
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{where} has the column {printable(twice[0])!r} twice. Leave one.")
    if rows.size == 0 or rows.shape[1] != len(names):
        raise ConfigError(
            f"{where} has {len(names)} names and {rows.shape[1] if rows.size else 'no'} columns of "
            "numbers. Its first line must name every column."
        )
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ConfigError(
            f"{where}: line {row + 2}, column {printable(names[column])!r} is "
            f"{rows[row, column]}. Leave such lines out, and keep `time`, which shows the gap."
        )
    return names, rows
