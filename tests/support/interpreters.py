"""Interpreters with other versions of libraries: virtual environments that a test session makes."""

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest

# What is installed, and the oldest and newest Python that it is made for.
OLD_GYM = ("gym==0.21.0 numpy<1.25", (3, 8), (3, 9))
ML_AGENTS = ("mlagents_envs==1.1.0 numpy<1.24 protobuf<3.21", (3, 10), (3, 10))
OLD_NUMPY = ("gymnasium<1 numpy<2", (3, 8), (3, 11))


def _candidates(oldest, newest):
    names = [f"python{major}.{minor}" for major, minor in _between(oldest, newest)]
    found = [Path(folder) / name for name in names for folder in os.get_exec_path()]
    for major, minor in _between(oldest, newest):
        found += sorted(Path.home().glob(f".pyenv/versions/{major}.{minor}.*/bin/python"))
    return [path for path in found if path.is_file()]


def _between(oldest, newest):
    return [(3, minor) for minor in range(oldest[1], newest[1] + 1)]


@cache
def interpreter(folder, packages, oldest, newest):
    """Return the path of an interpreter with these packages; skip the test if there is none."""
    for python in _candidates(oldest, newest):
        home = Path(folder) / f"venv-{abs(hash((packages, python)))}"
        made = [[str(python), "-m", "venv", str(home)]]
        made.append([str(home / "bin" / "pip"), "install", "--quiet", *packages.split()])
        # It asks for a patch of Python, and runs with others.
        made[1] += ["--ignore-requires-python"] if "mlagents" in packages else []
        if all(subprocess.run(line, capture_output=True).returncode == 0 for line in made):
            return str(home / "bin" / "python")
    pytest.skip(f"no Python {oldest} to {newest} with {packages} can be had here")
