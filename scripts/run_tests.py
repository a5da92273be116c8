"""Run the tests: `fast`, `all` with a rotating sample of the long ones, `newer` without PyBullet.

`all` takes thirty of the slow tests, and every second one of those that train. The seed of a day is
its number, so that each day's run takes others: two days run all that train.
`python scripts/run_tests.py all --slow 30 --seed 3` repeats a sample; `--slow all --training all`
runs every one. What `fast` has passed, `all` leaves out as long as no file and no installed package
has changed; `--again` runs it, too.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import random
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What the fast tests passed with; in the virtual environment, which a fresh clone lacks.
PASSED = Path(sys.prefix) / ".fast-tests-passed"
FAST = "not training and not slow"
# Of each room a file whose tests need no PyBullet, for Pythons that have no wheel of it.
NEWER = (
    *("tests/analysis/test_statistics.py", "tests/config/test_compose.py"),
    *("tests/envs/test_without_pybullet.py", "tests/store/test_submissions.py"),
    *("tests/sweeps/test_sweep_jobs.py", "tests/test_registry.py"),
    *("tests/tuning/test_asking_and_telling.py", "tests/tuning/test_space.py"),
)
WORKERS = 2
# One thread a test process: on few cores, torch's threads would fight each other.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> int:
    """Run the chosen tests and return pytest's exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fast", "all", "newer"))
    parser.add_argument("--slow", default="30", help="how many slow tests, or all; default 30")
    parser.add_argument(
        "--training", choices=("half", "all"), default="half", help="of those that train"
    )
    parser.add_argument("--seed", type=int, default=datetime.date.today().toordinal())
    parser.add_argument("--again", action="store_true", help="run what has passed already, too")
    options = parser.parse_args()
    if options.what == "newer":
        return _pytest("-m", "not slow", *NEWER)
    state = _state()
    if options.what == "fast":
        PASSED.unlink(missing_ok=True)
        code = _pytest("-m", FAST)
        if code == 0 and state is not None and state == _state():
            PASSED.write_text(state)
        return code
    has_passed = state is not None and PASSED.is_file() and PASSED.read_text() == state
    leaves_out = has_passed and not options.again
    chosen = _slow_tests()
    if options.slow != "all":
        count = min(int(options.slow), len(chosen))
        chosen = sorted(random.Random(options.seed).sample(chosen, count))
    print(f"slow tests, seed {options.seed}: {len(chosen)}", flush=True)
    for test in chosen:
        print(f"  {test}", flush=True)
    if leaves_out:
        print("the fast tests have passed with these very files: run are the others", flush=True)
    half = [f"--training={options.seed}:2"] if options.training == "half" else []
    code = _pytest("-m", "training and not slow" if leaves_out else "not slow", *half)
    return code or (_pytest("-m", "slow", *chosen) if chosen else 0)


def _slow_tests() -> list[str]:
    # pyproject.toml adds the one -q that lists a test on each line; a second would only count.
    command = [sys.executable, "-m", "pytest", "--collect-only", "-m", "slow"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tests = sorted(line for line in done.stdout.splitlines() if "::" in line)
    if not tests:
        sys.exit(f"no slow tests were found:\n{done.stdout}{done.stderr}")
    return tests


def _state() -> str | None:
    """Return a hash of all files in git and of what is installed; None without git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode != 0:
        return None
    digest = hashlib.sha256(sys.version.encode())
    for name in sorted(set(listed.stdout.split(b"\0"))):
        path = ROOT / os.fsdecode(name)
        digest.update(name + b"\0")
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    for package in sorted(f"{found.name} {found.version}" for found in metadata.distributions()):
        digest.update(package.encode())
    return digest.hexdigest()


def _pytest(*arguments: str) -> int:
    parallel = ["-n", str(WORKERS), "--dist", "worksteal"]
    command = [sys.executable, "-m", "pytest", *parallel, *arguments]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
