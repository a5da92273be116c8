"""The contributor's loop: lint, types and the fast tests nearest to what has changed, in a minute.

What has changed is what differs from the last commit; where nothing does, the last commit itself.
`make quick SINCE=main` compares with another revision. First come the changed tests, then those
that import a changed module, then those of modules that import it. Tests that find no time are
counted; `make check` runs all.
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
FAST = "not training and not slow"


def main() -> int:
    """Check what has changed and return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--since", help="compare with this revision instead of the last commit")
    parser.add_argument("--all", action="store_true", help="all rooms, without a limit of time")
    options = parser.parse_args()
    begun = time.monotonic()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    for command in (
        ["ruff", "check", "--quiet", "."],
        ["ruff", "format", "--check", "--quiet", "."],
    ):
        if subprocess.run([BIN / command[0], *command[1:]], cwd=ROOT, check=False).returncode:
            return 1
    arguments = ["tests"]
    if not options.all:
        files = tests_near(changed_files(options.since))
        print(f"{len(files)} test files, nearest first: {', '.join(files[:6])} ...", flush=True)
        arguments = [*files, f"--time-limit={TESTS_S}"]
    types = subprocess.Popen([BIN / "mypy"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    workers = ["-n", "2"] if options.all else ["-n", "0", "-p", "no:randomly"]
    code = 0
    if arguments[0].startswith("tests"):
        command = [sys.executable, "-m", "pytest", "-m", FAST, *workers, *arguments]
        code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    told, _ = types.communicate()
    if types.returncode:
        print(told)
    print(f"{time.monotonic() - begun:.0f} s")
    # 5: none of these tests is a fast one.
    return 1 if types.returncode or code not in (0, 5) else 0


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
    return sorted(distances, key=lambda name: (distances[name], name))


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
