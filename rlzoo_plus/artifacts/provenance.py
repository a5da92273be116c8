"""The provenance of a run: code, libraries, machine, command line."""

from __future__ import annotations

import contextlib
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
    *("rlzoo-plus", "torch", "stable-baselines3", "sb3-contrib", "gymnasium", "pybullet"),
    *("numpy", "hydra-core", "omegaconf", "pydantic"),
)
_LONGEST_DIFF = 200_000


def command_line(arguments: list[str]) -> str:
    """Return a command line as one text for a shell, with secrets blanked out."""
    variables = values_of_variables()
    return shlex.join(_without_secret(text, variables) for text in arguments)


def python_call(name: str, arguments: list[str]) -> str:
    """Return the Python call with the arguments of a command line, secrets blanked out."""
    variables = values_of_variables()
    shown = (repr(_without_secret(text, variables)) for text in arguments)
    return f"{name}({', '.join(shown)})"


def _without_secret(argument: str, variables: list[str]) -> str:
    key, _, value = argument.partition("=")
    shown = redact(argument, variables)
    # A value with spaces ends with the argument, which `redact` cannot know.
    if value and shown != argument and is_secret(key, value, variables) and value[0] not in "{[":
        return f"{key}={BLANK}"
    return shown


def collect_provenance(source: Path, user_files: Iterable[Path] = ()) -> dict[str, Any]:
    """Describe code, libraries and machine.

    Args:
        source: A file of this package; its commit is `git`, empty unless it is in a checkout.
        user_files: Of the user's modules. Their repositories, and that of the working directory,
            are `user_git`.
    """
    ours = git_state(source)
    our_root, states = _root(source) if ours else None, {}
    for place in (Path.cwd(), *user_files):
        root = _root(place)
        if root and root != our_root and root not in states and (state := git_state(place)):
            states[root] = {"root": root, **state}
    return {
        "git": ours,
        "user_git": list(states.values()),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in PACKAGES},
        "machine": machine_fingerprint(),
        "working_directory": os.getcwd(),
    }


def git_state(source: Path) -> dict[str, Any]:
    """Return commit and uncommitted diff of the checkout around a path, empty outside of one.

    A file that its repository ignores, as those of a virtual environment, is not part of it.
    """
    commit = run_git(source, "rev-parse", "HEAD")
    if not commit or (
        source.is_file() and run_git(source, "check-ignore", "-q", source.name) == ""
    ):
        return {}
    diff = run_git(source, "diff", "HEAD") or ""
    dirty = bool((run_git(source, "status", "--porcelain") or "").strip())
    cut = diff[:_LONGEST_DIFF]
    return {"commit": commit.strip(), "dirty": dirty, "diff": cut, "cut": len(diff) > len(cut)}


def _root(place: Path) -> str | None:
    return (run_git(place, "rev-parse", "--show-toplevel") or "").strip() or None


@functools.cache
def code_state(source: Path) -> dict[str, Any]:
    """Return `git_state` without the diff; cached."""
    return {key: value for key, value in git_state(source).items() if key in ("commit", "dirty")}


def machine_fingerprint() -> dict[str, Any]:
    """Describe what floating-point results can depend on: processor, cores, system."""
    processor = platform.processor() or "unknown"
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else processor
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": processor,
        "cores": os.cpu_count(),
    }


def package_version(name: str) -> str | None:
    """Return the version of a distribution, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def run_git(source: Path, *arguments: str) -> str | None:
    """Return what git prints in the folder of a path, None if it fails, or there is no git."""
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
