"""Composing the real conf/ for tests, and running tiny trainings with it."""

import copy
import functools
from pathlib import Path

import numpy as np
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode

from rlzoo_plus.artifacts.records import read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.catalog import ALGORITHMS
from rlzoo_plus.config.composer import Composer
from rlzoo_plus.config.overrides import prepare_overrides
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.search_path import conf_dir

TINY = (
    "env.packages=[support.tiny_envs]",
    "tuned=none",
    "network.net_arch=[8]",
    "eval.episodes=2",
    "log.tensorboard=false",
    "num_threads=1",
    "device=cpu",
    "checkpoint.keep_best=false",
    "n_timesteps=64",
)
ON_POLICY = ("algo.hyperparams.n_steps=32", "algo.hyperparams.batch_size=16")
SMALL = {
    "ppo": (*ON_POLICY, "algo.hyperparams.n_epochs=2"),
    "recurrent_ppo": (*ON_POLICY, "algo.hyperparams.n_epochs=2", "network.lstm.hidden_size=4"),
    "maskable_ppo": (*ON_POLICY, "algo.hyperparams.n_epochs=2"),
    "trpo": (*ON_POLICY,),
    "a2c": ("algo.hyperparams.n_steps=16",),
    "ars": ("algo.hyperparams.n_delta=2",),
}
SMALL["sbx_ppo"] = SMALL["mappo"] = SMALL["ppo"]
OFF_POLICY = (
    "algo.hyperparams.learning_starts=24",
    "algo.hyperparams.batch_size=8",
    "algo.hyperparams.buffer_size=500",
    "algo.hyperparams.train_freq=4",
)
SMALL["recurrent_sac"] = (
    *OFF_POLICY,
    "network.lstm.hidden_size=4",
    "algo.hyperparams.sequence_length=4",
    "algo.hyperparams.burn_in=2",
)


@functools.cache
def _composer() -> Composer:
    """Return what asks Hydra, which takes 0.2 s, only once for a choice of files."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        loader = GlobalHydra.instance().config_loader()
        return Composer(loader, loader.load_configuration("config", [], RunMode.MULTIRUN))


@functools.cache
def _compose(overrides: tuple[str, ...]) -> RunConfig:
    composed = _composer().compose(0, prepare_overrides(overrides))
    return resolve(composed.values, env_name=composed.choices.get("env")).config


def make_config(*overrides: str) -> RunConfig:
    """Compose conf/ with a command line's overrides and check it, as `train` does."""
    return copy.deepcopy(_compose(overrides))


def tiny_config(algo: str = "ppo", env: str = "tests/TinyReach-v0", *overrides: str) -> RunConfig:
    """Compose a configuration that trains in a moment; `env` is a Gymnasium id.

    Of overrides with the same key the last one counts, those of a test after the tiny ones.
    """
    network = {"ars": ("network.policy=mlp",), "sbx_dqn": ("network.net_arch=[8,8]",)}
    small = ON_POLICY if ALGORITHMS[algo].clones else SMALL.get(algo, OFF_POLICY)
    usual = (*TINY, *small, *network.get(algo, ()))
    words = (f"algo={algo}", f"env.id={env}", *usual, *overrides)
    return make_config(*{word.partition("=")[0]: word for word in words}.values())


def start_run(path: Path, config: RunConfig) -> RunDir:
    """Write what `train` writes before the first step."""
    path.mkdir(parents=True, exist_ok=True)
    run_dir = RunDir(path)
    run_dir.start(config.model_dump(mode="json"), "a test", {})
    return run_dir


def train_run(path: Path, config: RunConfig, stop=None):
    """Train; return the run's directory and the result."""
    from rlzoo_plus.training.exp_manager import ExpManager

    run_dir = start_run(path, config)
    return run_dir, ExpManager(config, run_dir, stop).train()


def evaluations(run_dir: RunDir) -> list[dict]:
    """Return the records of a run's evaluations."""
    return read_records(run_dir.evaluations_file)


def bundle_weights(path: Path) -> dict[str, np.ndarray]:
    """Return the weights in a bundle."""
    from rlzoo_plus.artifacts.bundle import load_bundle

    return load_bundle(path).weights


def assert_same_tree(left, right, path="") -> None:
    """Compare nested data with arrays bit for bit."""
    assert type(left) is type(right), f"{path}: {type(left)} and {type(right)}"
    if isinstance(left, dict):
        assert left.keys() == right.keys(), path
        for key in left:
            assert_same_tree(left[key], right[key], f"{path}.{key}")
    elif isinstance(left, (list, tuple)):
        assert len(left) == len(right), path
        for i, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same_tree(a, b, f"{path}[{i}]")
    elif isinstance(left, np.ndarray):
        assert left.dtype == right.dtype, path
        np.testing.assert_array_equal(left, right, err_msg=path)
    else:
        assert left == right, path
