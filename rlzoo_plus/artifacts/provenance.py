"""Where a run came from: code, libraries, machine, command line."""

from __future__ import annotations

import functools
import os
import platform
import shlex
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.secrets import BLANK, is_secret, redact

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
    return shlex.join(_without_secret(word) for word in words)


def _without_secret(word: str) -> str:
    key, equals, value = word.partition("=")
    shown = redact(word)
    # A value with spaces in it ends with the word.
    is_whole = equals and shown != word and is_secret(key, value) and value[:1] not in "{["
    return f"{key}={BLANK}" if is_whole else shown


def collect_provenance(source: Path) -> dict[str, Any]:
    """Describe code, libraries and machine.

    Args:
        source: A path inside the checkout whose commit is recorded.
    """
    return {
        "git": git_state(source),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "machine": machine_fingerprint(),
        "working_directory": os.getcwd(),
    }


def git_state(source: Path) -> dict[str, Any]:
    """Return commit and uncommitted diff of the checkout around a path, empty outside of one."""
    commit = _git(source, "rev-parse", "HEAD")
    if not commit:
        return {}
    diff = _git(source, "diff", "HEAD") or ""
    dirty = bool((_git(source, "status", "--porcelain") or "").strip())
    cut = diff[:_LONGEST_DIFF]
    return {"commit": commit.strip(), "dirty": dirty, "diff": cut, "cut": len(diff) > len(cut)}


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


def _version(name: str) -> str | None:
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
