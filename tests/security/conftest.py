"""Runs the malicious cases of a module in one guarded process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.stores import cache, liar, s3  # noqa: F401
from support.stores import store as honest  # noqa: F401

TESTS = Path(__file__).parents[1]


def snapshot(root: Path) -> dict:
    """Return what lies below a folder: kind, size and time of change by path."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [*folders, *files]:
            path = Path(folder) / name
            status = path.lstat()
            found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """Return a function: cases to what each did, and whether anything changed on disk."""

    def run(root, good, evil):
        (root / "evil_package.py").write_text("raise SystemExit('evil_package was imported')\n")
        (root / "cwd").mkdir()
        before = snapshot(root)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS), str(root)]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, str(TESTS / "support" / "guard.py")],
            input=json.dumps({"good": good, "evil": evil}),
            cwd=root / "cwd",
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        results = json.loads(done.stdout.splitlines()[-1])
        return results, before, snapshot(root)

    return run


@pytest.fixture(scope="session")
def assert_refused():
    """Return a check: one clear printable line, soon, in little memory, and nothing done."""

    def check(result):
        assert result["events"] == []
        assert result["code"] == 2, result["text"]
        assert 10 < len(result["text"]) < 1200
        assert result["text"].isprintable(), ascii(result["text"])
        assert "Traceback" not in result["text"]
        assert "alloc" not in result["text"]
        assert result["seconds"] < 60
        assert result["more_kib"] < 400_000

    return check
