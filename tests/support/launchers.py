"""One launcher of each kind, with two slots, as the contract suite takes them."""

import contextlib
import importlib.util
import os
import sys

import pytest
from support import fake_slurm
from support.aws import deployed_project
from support.fake_batch import as_processes, fake_batch
from support.processes import environ_of_tests
from support.worker_processes import worker_processes

from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.sweeps.launchers.launcher import make_launcher

KINDS = (
    *("local", "debug", "slurm_local", "slurm", "slurm_cluster", "workers"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ray", "aws_batch", "ec2_spot")),
)
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
        made_by = {
            "workers": launcher_of_workers,
            "aws_batch": launcher_of_batch,
            "ec2_spot": launcher_of_fleets,
        }
        if kind in made_by:
            with made_by[kind](folder, patch) as made:
                yield made
        else:
            yield make_launcher(infra_of(kind, folder, patch), 1, ())


@contextlib.contextmanager
def launcher_of_workers(folder, patch):
    """Yield a launcher whose jobs two workers take from a shared folder."""
    infra = InfraConfig(name="workers", workers=SLOTS, look_s=0.1)
    store = str(folder / "store")
    with worker_processes(store, "contract", folder / "workers", SLOTS):
        yield make_launcher(infra, 1, (), store=store, sweep="contract")


@contextlib.contextmanager
def launcher_of_batch(folder, patch):
    """Yield a launcher whose jobs are those of moto's AWS Batch, as processes of this machine."""
    from rlzoo_plus.cloud import batch
    from rlzoo_plus.cloud.image import WorkerImage

    command = [sys.executable, "-m", "support.batch_worker", str(folder)]
    patch.setattr(batch, "worker_image", lambda *_, **__: WorkerImage("localhost/none", (), ""))
    for name, value in environ_of_tests().items():
        patch.setenv(name, value)
    with deployed_project(patch, server=True), fake_batch(patch, as_processes(command)):
        infra = InfraConfig(name="aws_batch", workers=SLOTS, look_s=0.1)
        yield make_launcher(infra, 1, (), sweep="contract")


@contextlib.contextmanager
def launcher_of_fleets(folder, patch):
    """Yield a launcher that starts fleets on moto; two workers stand in for their machines."""
    from rlzoo_plus.cloud import fleet
    from rlzoo_plus.cloud.image import WorkerImage

    patch.setattr(fleet, "worker_image", lambda project: WorkerImage("image", (), ""))
    infra = InfraConfig(name="ec2_spot", workers=SLOTS, look_s=0.1)
    with (
        deployed_project(patch, server=True) as project,
        worker_processes(project.store, "contract", folder / "workers", SLOTS),
    ):
        yield make_launcher(infra, 1, (), sweep="contract")
        assert fleet.find_fleets(project.name, sweep=f"{project.store}/contract")


def infra_of(kind, folder, patch):
    """Return the configuration of a launcher."""
    if kind in ("local", "debug", "ray"):
        return InfraConfig(name=kind, workers=SLOTS)
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
