"""The contributor's loop: lint, types and the fast tests nearest to what has changed, in a minute.

What has changed is what differs from the last commit; where nothing does, the last commit itself.
`make quick SINCE=main` compares with another revision. First come the changed tests, then those
that import a changed module, then those of modules that import it. Tests and files that find no
time are counted; `make check` runs all.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PACKAGES = ("rlzoo_plus", "robots")
# Of the minute, what the tests may take; types are checked beside them.
TESTS_S = 40
BATCH = 12
FAST = "not training and not slow"


def main() -> int:
    """Check what has changed and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", help="compare with this revision instead of the last commit")
    parser.add_argument("--all", action="store_true", help="all rooms, without a limit of time")
    options = parser.parse_args()
    begun = time.monotonic()
    for command in (
        ["ruff", "check", "--quiet", "."],
        ["ruff", "format", "--check", "--quiet", "."],
    ):
        if subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, check=False).returncode:
            return 1
    types = subprocess.Popen([BIN / "mypy"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if options.all:
        passed = _passes("-n", "2", "tests")
    else:
        passed = _nearest_pass(tests_near(changed_files(options.since)), begun + TESTS_S)
    told, _ = types.communicate()
    if types.returncode:
        print(told)
    print(f"{time.monotonic() - begun:.0f} s")
    return 0 if passed and types.returncode == 0 else 1


def _nearest_pass(files: list[str], until: float) -> bool:
    """Run files of tests, nearest first, until there is no time; return whether they passed."""
    print(f"{len(files)} test files, nearest first: {', '.join(files[:6])} ...", flush=True)
    # Collecting takes time, too: a few files after the other.
    for first in range(0, len(files), BATCH):
        left_s = until - time.monotonic()
        if left_s < 1:
            print(f"no time for {len(files) - first} files; `make check` runs all", flush=True)
            break
        batch = files[first : first + BATCH]
        if not _passes("-n", "0", "-p", "no:randomly", f"--time-limit={left_s:.0f}", *batch):
            return False
    return True


def _passes(*arguments: str) -> bool:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-m", FAST, *arguments]
    # 5: none of these tests is a fast one.
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode in (0, 5)


def changed_files(since: str | None) -> list[str]:
    """Return the paths that differ from a revision, with those that git does not know yet."""
    found = _git("diff", "--name-only", since or "HEAD")
    found += _git("ls-files", "--others", "--exclude-standard")
    return found or _git("diff", "--name-only", "HEAD~1")


def tests_near(changed: Iterable[str]) -> list[str]:
    """Return test files, those nearest to the changed files first."""
    files = list(changed)
    modules = {
        _module(file) for file in files if file.startswith(PACKAGES) and file.endswith(".py")
    }
    graph = grimp.build_graph(*PACKAGES)
    importers = {
        above
        for module in modules & graph.modules
        for above in graph.find_modules_that_directly_import(module)
    }
    distances = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        name = str(file.relative_to(ROOT))
        named = _imported(file)
        if name in files:
            distances[name] = 0
        elif named & modules:
            distances[name] = 1
        elif named & importers:
            distances[name] = 2
    # Tests mirror the packages: those of the changed rooms come before others as near.
    rooms = {f"tests/{module.removeprefix('rlzoo_plus.').split('.')[0]}/" for module in modules}
    return sorted(
        distances, key=lambda name: (distances[name], not name.startswith(tuple(rooms)), name)
    )


def _imported(file: Path) -> set[str]:
    """Return the modules that a test imports, and what it imports from them."""
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
    return found


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
