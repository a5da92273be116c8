"""One launcher of each kind, with two slots, as the contract suite takes them."""

import contextlib
import importlib.util
import os
import time
from pathlib import Path

import pytest
from support import fake_slurm

from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.infra.launcher import make_launcher

KINDS = ("local", "debug", "slurm_local", "slurm", "slurm_cluster", "ray")
# Set to 1, real jobs are submitted with the sbatch of this machine, which must be a node itself.
REAL_SLURM = "RLZOO_PLUS_TEST_SLURM"
SLOTS = 2


@contextlib.contextmanager
def launcher_of(kind, folder):
    """Yield a launcher; what it needs exists only inside."""
    needs = {"ray": "ray"}.get(kind, "submitit" if kind.startswith("slurm") else None)
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} is not installed")
    with pytest.MonkeyPatch.context() as patch:
        yield make_launcher(infra_of(kind, folder, patch), 1, ())


def infra_of(kind, folder, patch):
    """Return the configuration of a launcher."""
    if kind in ("local", "debug"):
        return InfraConfig(name=kind, workers=SLOTS)
    if kind == "ray":
        return InfraConfig(name="ray", workers=SLOTS)
    jobs = str(folder / "slurm")
    if kind == "slurm_local":
        return InfraConfig(name="slurm", cluster="local", workers=SLOTS, folder=jobs)
    if kind == "slurm_cluster":
        if os.environ.get(REAL_SLURM) != "1":
            pytest.skip(f"real jobs are submitted only with {REAL_SLURM}=1")
        return InfraConfig(name="slurm", workers=SLOTS, folder=jobs)
    fake_slurm.install(folder / "bin", folder / "state")
    patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    patch.setenv("FAKE_SLURM", str(folder / "state"))
    return InfraConfig(name="slurm", workers=SLOTS, folder=jobs)


def end_of(launcher, handle, timeout_s=60.0):
    """Wait for the end of a job, as a controller does."""
    deadline = time.monotonic() + timeout_s
    while (end := handle.poll()) is None:
        assert time.monotonic() < deadline
        launcher.wait([handle], 0.2)
    return end


def wait_for(condition, timeout_s=60.0):
    """Wait until something holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid):
    """Tell whether a process runs."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
