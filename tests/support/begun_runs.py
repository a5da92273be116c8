"""Fixtures: runs as a process left them, of a small configuration."""

import numpy as np
import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.tree import TENSOR_FILE
from rlzoo_plus.config.cadence import with_schedule

BASE = ("algo=ppo", "env=cartpole_bullet", "tuned=none", "n_envs=1", "algo.hyperparams.n_steps=128")


@pytest.fixture
def base():
    """Return overrides of a run that is small and the same everywhere."""
    return BASE


@pytest.fixture
def make(resolve_config, tmp_path):
    """Return a function: overrides to a checked configuration for `tmp_path/run`."""

    def make_it(*overrides):
        where = f"run_dir={tmp_path / 'run'}"
        return resolve_config(*BASE, where, "n_timesteps=100000", *overrides).config

    return make_it


@pytest.fixture
def begin(make, tmp_path):
    """Return a function that leaves a run as a process would have left it."""

    def begin_it(state=None, *overrides, steps=(), **details):
        config = with_schedule(make(*overrides), lambda: 500)
        run = RunDir(tmp_path / "run")
        run.path.mkdir()
        run.start(config.model_dump(mode="json"), "the first command", {"seed": 0})
        if state is not None:
            run.write_status(state, n_timesteps=config.n_timesteps, **details)
        for step in steps:
            run.checkpoints(keep=9).save(step, {"weights": np.zeros(9)}, {})
        return run

    return begin_it


@pytest.fixture
def spoil():
    """Return a function that damages a checkpoint of a run."""

    def spoil_it(run, step):
        file = run.checkpoints().root / f"{step:012d}" / TENSOR_FILE
        file.write_bytes(file.read_bytes()[:-1])

    return spoil_it
