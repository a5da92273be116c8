"""Two deaths of `python -m benchmarks.worker_deaths`, in training and in an evaluation."""

import subprocess
import sys

import pytest
from support.processes import ROOT

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("case", ["sac", "ppo, evaluation"])
def test_a_run_whose_processes_are_killed_names_them_and_goes_on_exactly(case):
    command = [sys.executable, "-m", "benchmarks.worker_deaths", case, "--kills", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    row = done.stdout.splitlines()[-1]
    assert row.startswith(f"| {case} | 2 |"), done.stdout + done.stderr
    # How long it took is the benchmark's matter: the machine of a test may be busy.
    assert row.endswith(("| 2 of 2 | 0 | 1 of 1 runs |", "| 2 of 2 | 0 | 2 of 2 runs |"))
