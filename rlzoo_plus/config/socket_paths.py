"""Keeps the paths of sockets short, which temporary folders need not be."""

from __future__ import annotations

import os
import tempfile
from multiprocessing import util

from rlzoo_plus.errors import ConfigError

# The least that an operating system allows is 92 bytes (unix(7)); multiprocessing appends two names
# to a temporary folder.
LONGEST_FOLDER = 92 - len("/pymp-12345678/listener-12345678")
SHORT_FOLDER = "/tmp"


def keep_socket_paths_short() -> None:
    """Let multiprocessing keep its sockets in /tmp if the temporary folder's path is too long.

    Call it before the first process of a fork server starts, which would fail otherwise. Clusters
    and test runners set such a `TMPDIR`.

    Raises:
        ConfigError: /tmp cannot be written to either.
    """
    folder = tempfile.gettempdir()
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return
    tempfile.tempdir = SHORT_FOLDER
    try:
        # Made once, and known to this process and to those that it starts.
        util.get_temp_dir()
    except OSError as error:
        raise ConfigError(
            f"temporary folder {folder}: {len(os.fsencode(folder))} bytes are too long for sockets,"
            f" and {SHORT_FOLDER} can't be used ({error.strerror}). Set TMPDIR to at most "
            f"{LONGEST_FOLDER} bytes."
        ) from error
    finally:
        tempfile.tempdir = folder
