"""Processes start from a temporary folder whose path is too long for a socket."""

import os
import subprocess
import sys
import tempfile

import pytest

from rlzoo_plus.config import socket_paths
from rlzoo_plus.errors import ConfigError

START = """
import multiprocessing, tempfile
from rlzoo_plus.config.socket_paths import keep_socket_paths_short

if __name__ == "__main__":
    before = tempfile.gettempdir()
    keep_socket_paths_short()
    assert tempfile.gettempdir() == before
    process = multiprocessing.get_context("forkserver").Process(target=print, args=("reached",))
    process.start()
    process.join()
    print(multiprocessing.util.get_temp_dir())
"""


def long_folder(tmp_path, length):
    folder = tmp_path / ("x" * (length - len(os.fsencode(tmp_path)) - 1))
    folder.mkdir()
    assert len(os.fsencode(folder)) == length
    return folder


@pytest.mark.parametrize("length", [95, 200])
def test_a_process_starts_from_a_long_temporary_folder(tmp_path, length):
    folder = long_folder(tmp_path, max(length, len(str(tmp_path)) + 2))
    script = tmp_path / "start.py"
    script.write_text(START, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    reached, used = done.stdout.split()
    assert reached == "reached"
    assert used.startswith(socket_paths.SHORT_FOLDER)
    assert not os.path.exists(used), "the folder of the sockets is left behind"


def test_a_short_temporary_folder_stays_in_use(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/x" * (socket_paths.LONGEST_FOLDER // 2))
    monkeypatch.setattr(socket_paths.util, "get_temp_dir", lambda: pytest.fail("made a folder"))
    socket_paths.keep_socket_paths_short()


def test_where_no_folder_serves_the_user_is_told(monkeypatch):
    long = "/x" * socket_paths.LONGEST_FOLDER

    def refuse():
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "tempdir", long)
    monkeypatch.setattr(socket_paths.util, "get_temp_dir", refuse)
    with pytest.raises(ConfigError, match=r"120 bytes are too long.*/tmp can't be used.*TMPDIR"):
        socket_paths.keep_socket_paths_short()
    assert tempfile.gettempdir() == long, "the temporary folder of everything else has changed"
