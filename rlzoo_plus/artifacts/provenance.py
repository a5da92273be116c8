"""Where a run came from: code, libraries, machine, command line."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.secrets import BLANK, is_secret, redact, values_of_variables

PACKAGES = (
    "rlzoo-plus",
    "torch",
    "stable-baselines3",
    "sb3-contrib",
    "gymnasium",
    "pybullet",
    "numpy",
    "hydra-core",
    "omegaconf",
    "pydantic",
)
_LONGEST_DIFF = 200_000


def command_line(words: list[str]) -> str:
    """Return a command line as one text, ready to be pasted, with secrets blanked out."""
    variables = values_of_variables()
    return shlex.join(_without_secret(word, variables) for word in words)


def python_call(name: str, words: list[str]) -> str:
    """Return the Python call with the arguments of a command line, secrets blanked out."""
    variables = values_of_variables()
    return f"{name}({', '.join(repr(_without_secret(word, variables)) for word in words)})"


def _without_secret(word: str, variables: list[str]) -> str:
    key, equals, value = word.partition("=")
    shown = redact(word, variables)
    # A value with spaces in it ends with the word.
    is_whole = (
        equals and shown != word and is_secret(key, value, variables) and value[:1] not in "{["
    )
    return f"{key}={BLANK}" if is_whole else shown


def collect_provenance(source: Path, user_files: Iterable[Path] = ()) -> dict[str, Any]:
    """Describe code, libraries and machine.

    Args:
        source: A file of this package; its commit is `git`, empty unless it is in a checkout.
        user_files: Of the user's modules. Their repositories, and that of the working directory,
            are `user_git`.
    """
    return {
        "git": git_state(source),
        "user_git": _user_git(source, [Path.cwd(), *user_files]),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "machine": machine_fingerprint(),
        "working_directory": os.getcwd(),
    }


def git_state(source: Path) -> dict[str, Any]:
    """Return commit and uncommitted diff of the checkout around a path, empty outside of one.

    A file that the repository around it ignores, as those of a virtual environment, is no part
    of it.
    """
    commit = _git(source, "rev-parse", "HEAD")
    if not commit or (source.is_file() and _git(source, "check-ignore", "-q", source.name) == ""):
        return {}
    diff = _git(source, "diff", "HEAD") or ""
    dirty = bool((_git(source, "status", "--porcelain") or "").strip())
    cut = diff[:_LONGEST_DIFF]
    return {"commit": commit.strip(), "dirty": dirty, "diff": cut, "cut": len(diff) > len(cut)}


def _user_git(source: Path, places: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the state of each repository around some places, but for that of this package."""
    ours = _root(source) if git_state(source) else None
    states = {}
    for place in places:
        root = _root(place)
        if root and root != ours and root not in states and (state := git_state(place)):
            states[root] = {"root": root, **state}
    return list(states.values())


def _root(place: Path) -> str | None:
    return (_git(place, "rev-parse", "--show-toplevel") or "").strip() or None


@functools.cache
def code_state(source: Path) -> dict[str, Any]:
    """Return commit and cleanness of the checkout around a path, without the diff; asked once."""
    return {key: value for key, value in git_state(source).items() if key in ("commit", "dirty")}


def machine_fingerprint() -> dict[str, Any]:
    """Describe what floating-point results can depend on: processor, cores, system."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def package_version(name: str) -> str | None:
    """Return the version of an installed package, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _git(source: Path, *arguments: str) -> str | None:
    folder = source if source.is_dir() else source.parent
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
