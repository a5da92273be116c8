"""Run the tests: `fast`, or `all` with a rotating, seeded sample of the slow ones.

`python scripts/run_tests.py all --slow 30 --seed 3` repeats a sample; `--slow all` runs every one.
The seed of a day is its number, so that each day's run takes other slow tests.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WORKERS = 2
# One thread a test process: on few cores, torch's threads would fight each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> int:
    """Run the chosen tests and return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fast", "all"))
    parser.add_argument("--slow", default="30", help="how many slow tests, or all; default 30")
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    options = parser.parse_args()
    if options.what == "fast":
        return _pytest("-m", "not training and not slow")
    chosen = _slow_tests()
    if options.slow != "all":
        count = min(int(options.slow), len(chosen))
        chosen = sorted(random.Random(options.seed).sample(chosen, count))
    print(f"slow tests, seed {options.seed}: {len(chosen)}", flush=True)
    for test in chosen:
        print(f"  {test}", flush=True)
    code = _pytest("-m", "not slow")
    return code or (_pytest("-m", "slow", *chosen) if chosen else 0)


def _slow_tests() -> list[str]:
    # pyproject.toml adds the one -q that lists a test on each line; a second would only count.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "slow"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tests = sorted(line for line in done.stdout.splitlines() if "::" in line)
    if not tests:
        sys.exit(f"no slow tests were found:\n{done.stdout}{done.stderr}")
    return tests


def _pytest(*arguments: str) -> int:
    parallel = ["-n", str(WORKERS), "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", *parallel, *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
