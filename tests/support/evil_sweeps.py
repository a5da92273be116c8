"""Owns sweeps as anybody may have made them: one job in a ledger, and edits of it."""

import json

from support.training import make_config

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import InfraConfig
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.sweep_job import SweepJob, make_job

CONFIG = ("algo=ppo", "env=pendulum", "tuned=none", "n_timesteps=4096", "device=cpu")


def make_sweep(sweep, *overrides, infra=None):
    """Write the ledger of a sweep with one job that waits; return the job."""
    sweep.mkdir(parents=True)
    config = make_config(*CONFIG, *overrides).model_copy(update={"sweep": str(sweep)})
    if infra is not None:
        config = config.model_copy(update={"infra": InfraConfig(**infra)})
    job = make_job(config)
    Ledger(sweep).add([job])
    return job


def edit_ledger(sweep, edit):
    """Change the record of the first job, as an editor would."""
    path = sweep / "ledger.jsonl"
    first, *rest = path.read_text().splitlines()
    record = json.loads(first)
    edit(record)
    path.write_text("\n".join([json.dumps(record), *rest]) + "\n")


def stopped(job: SweepJob):
    """Leave the run of a job as a process that was stopped leaves it."""
    run = RunDir(job.path)
    run.path.mkdir(parents=True)
    run.start(job.config.model_dump(mode="json"), "a command", {})
    run.write_status("interrupted", n_timesteps=job.config.n_timesteps)
    return run
