"""Fixtures: a run with checkpoints, trained once, and the tiny environments."""

import pytest
import support.tiny_envs  # noqa: F401
from support.training import tiny_config, train_run

EVERY = ("checkpoint.every_steps=32", "checkpoint.keep=20", "eval.every_steps=64")


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """Return a function: algorithm and overrides to a finished run, made once for each."""
    made = {}

    def train(algo="ppo", *overrides):
        if (algo, overrides) not in made:
            path = tmp_path_factory.mktemp(algo) / "run"
            words = ("env.kwargs.discrete=false", "n_timesteps=192", *EVERY, *overrides)
            config = tiny_config(algo, "tests/TinyReach-v0", *words)
            made[algo, overrides] = train_run(path, config)[0]
        return made[algo, overrides]

    return train
