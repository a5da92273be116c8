"""The tests of robots, environments and trainings pass where there is no plugin."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from robots.engines.compiling import SWITCH

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("tests/robots", "tests/envs", "tests/training/test_exact_resume.py")


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_tests_pass_with_the_plugin_switched_off(part):
    command = [sys.executable, "-m", "pytest", "-n", "0", "-m", "not slow", part]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {SWITCH: "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
