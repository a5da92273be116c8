"""Whole commands in processes of their own, with the environments of the tests at hand."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUS = [sys.executable, "-m", "rlzoo_plus"]


def environ_of_tests(**more):
    """Return the environment of a command that finds this package and the modules of the tests."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return {**os.environ, "PYTHONPATH": path, **more}


@contextlib.contextmanager
def commands_in(folder: Path, **usual):
    """Yield a function that starts a command in a folder; whatever is left in the end is killed.

    Args:
        folder: Where.
        usual: Arguments of `subprocess.Popen` for all commands. Without any, the commands write
            errors and output into one stream.
    """
    usual = {"env": environ_of_tests(), "stderr": subprocess.STDOUT, **usual}
    started = []

    def start(*words, **options):
        process = subprocess.Popen(
            [str(word) for word in words],
            **{"cwd": folder, "stdout": subprocess.PIPE, "text": True, **usual, **options},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def start(tmp_path):
    """Return a function: words of a command to its process, started in the test's own folder."""
    with commands_in(tmp_path) as start_it:
        yield start_it


@pytest.fixture
def call(start):
    """Return a function: words of a command to what it printed, with its exit code checked."""
    return lambda *words, code=0: output_of(start(*words), code)


def output_of(process: subprocess.Popen, code: int = 0) -> str:
    """Wait for a command, check its exit code, and return what it printed."""
    text, _ = process.communicate(timeout=1200)
    assert process.returncode == code, text[-3000:]
    return text


def wait_for(condition, process: subprocess.Popen | None = None, timeout_s: float = 120.0):
    """Return what a condition gives once that is true; a process must live until then."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)
    return found


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def has_ended(number, within_s=20.0):
    """Return whether a process ends in time; init may not have reaped it by then."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            stat = Path(f"/proc/{number}/stat").read_text()
        except OSError:
            return True
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.05)
    return False
