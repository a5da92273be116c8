"""Whole commands in processes of their own, with the environments of the tests at hand."""

import contextlib
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def commands_in(folder: Path):
    """Yield a function that starts a command in a folder; whatever is left in the end is killed."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    environ = {**os.environ, "PYTHONPATH": path}
    started = []

    def start(*words):
        process = subprocess.Popen(
            [str(word) for word in words],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()


def output_of(process: subprocess.Popen, code: int = 0) -> str:
    """Wait for a command, check its exit code, and return what it printed."""
    text, _ = process.communicate(timeout=300)
    assert process.returncode == code, text[-3000:]
    return text
