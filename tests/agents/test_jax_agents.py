"""Algorithms of sbx: exact resume, stored without pickle, and what is refused of a stored one."""

import json
import pickle
import re

import numpy as np
import pytest
from support.resuming import assert_same_in_pieces
from support.training import assert_same_tree, bundle_weights, tiny_config, train_run

from rlzoo_plus.agents.policy import load_policy, load_run_policy, policy_from_bundle
from rlzoo_plus.artifacts.atomic import write_folder
from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.artifacts.tree import pack
from rlzoo_plus.commands.import_sb3 import main as import_sb3
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.export.writing import export_policy
from rlzoo_plus.training.exp_manager import ExpManager

pytest.importorskip("sbx", reason="sbx is not installed")
pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
TWO_ENVS = ("n_envs=2", "n_timesteps=256", "eval.every_steps=128", "normalize=true")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the directory of a finished run of SAC."""
    config = tiny_config("sbx_sac", REACH, "normalize=true", "eval.every_steps=32")
    return train_run(tmp_path_factory.mktemp("sac") / "run", config)[0]


SETTINGS = "algo.hyperparams"
IN_PIECES = {
    **{
        algo: (algo, 2 if algo == "sbx_ppo" else 13, *TWO_ENVS)
        for algo in ("sbx_ppo", "sbx_sac", "sbx_td3", "sbx_ddpg", "sbx_tqc", "sbx_crossq")
    },
    "sbx_dqn": ("sbx_dqn", 9, "env.kwargs.discrete=true"),
    "target_kl": ("sbx_ppo", 2, f"{SETTINGS}.target_kl=0.001", "eval.deterministic=false"),
    "schedule": ("sbx_ppo", 2, f"{SETTINGS}.learning_rate=lin_1e-3", "env.frame_stack=2"),
    "resets": ("sbx_sac", 9, f"{SETTINGS}.param_resets=[40,60]", "network.policy=simba"),
    "delay": ("sbx_sac", 9, f"{SETTINGS}.policy_delay=2", f"{SETTINGS}.n_steps=3"),
    "noise": ("sbx_td3", 4, "algo.action_noise={type: ou, std: 0.3}", "n_envs=2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", IN_PIECES.values(), ids=IN_PIECES)
def test_a_resumed_run_is_bit_for_bit_the_one_never_stopped(tmp_path, case):
    algo, n_iterations, *overrides = case
    config = tiny_config(algo, REACH, "n_timesteps=96", "eval.every_steps=32", *overrides)
    assert_same_in_pieces(tmp_path, config, n_iterations)


def test_an_evaluation_with_noise_changes_no_training(tmp_path):
    def learned(name, *overrides):
        config = tiny_config("sbx_ppo", REACH, "eval.deterministic=false", *overrides)
        return train_run(tmp_path / name, config)[0].checkpoints().load_newest().state["agent"]

    often, never = learned("often", "eval.every_steps=32"), learned("never", "eval.every_steps=64")
    assert_same_tree(often["parameters"], never["parameters"])


def test_a_run_is_stored_and_loaded_without_pickle(run, monkeypatch):
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, None)
    policy = load_policy(run.best)
    policy.predict(policy.observation_space.sample())
    run.checkpoints().load_newest()
    stored = {file.suffix for file in run.path.rglob("*") if file.is_file()}
    plain = [".json", ".jsonl", ".yaml", ".safetensors", ".txt", ".csv", ".zst", ".chunk"]
    assert stored <= {*plain, ""}


def test_a_loaded_policy_normalises_and_acts_as_the_checkpoint_of_its_step(run):
    final = load_policy(run.final)
    observations = np.stack([final.observation_space.sample() for _ in range(20)])
    step = run.checkpoints().load_newest().step
    other = load_run_policy(run, str(step))
    np.testing.assert_array_equal(final.predict(observations)[0], other.predict(observations)[0])


@pytest.mark.parametrize(
    "arch",
    [[10**9, 10**9], [4] * 3_000, [9]],
    ids=["wide", "deep", "other"],
)
def test_a_bundle_whose_network_is_not_that_of_its_weights_is_refused(run, arch):
    bundle = load_bundle(run.best)
    bundle.config["network"]["net_arch"] = arch
    with pytest.raises(ConfigError, match=r"network cannot be built|weights do not fit"):
        policy_from_bundle(bundle)


def test_weights_of_another_type_are_refused(run):
    bundle = load_bundle(run.best)
    name = next(iter(bundle.weights))
    bundle.weights[name] = bundle.weights[name].astype(np.float64)
    with pytest.raises(ConfigError, match="weights do not fit the network"):
        policy_from_bundle(bundle)


@pytest.mark.parametrize("part", ["optimizers", "keys", "entropy"])
def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path, part):
    config = tiny_config("sbx_sac", REACH, "checkpoint.every_steps=32")
    run_dir, _ = train_run(tmp_path / "run", config)
    newest = run_dir.checkpoints().load_newest()
    values = newest.state["agent"]["parameters"][part]
    name = next(iter(values))
    values[name] = np.zeros(7, values[name].dtype)
    write_folder(newest.path, pack(newest.state), newest.about)
    with pytest.raises(ConfigError, match=f"does not fit this run: {re.escape(name)} is"):
        ExpManager(config, run_dir).train()


def test_a_warm_start_takes_networks_and_averages_and_keeps_its_own_noise(run, tmp_path):
    source = run.checkpoints().load_newest().state["agent"]["parameters"]
    config = tiny_config("sbx_sac", REACH, "normalize=true", "seed=5", "n_timesteps=20")
    init = {"parts": ["policy", "optimizer"], "which": "final"}
    begun = config.model_copy(
        update={
            "init_from": str(run.path),
            "init": config.init.model_copy(update=init),
            "checkpoint": config.checkpoint.model_copy(update={"keep": 9}),
        }
    )
    run_dir, _ = train_run(tmp_path / "run", begun)
    taken = run_dir.checkpoints().load(0).state["agent"]["parameters"]
    assert_same_tree(taken["policy"], source["policy"])
    assert_same_tree(taken["entropy"], source["entropy"])
    averages = [name for name in source["optimizers"] if ".hyperparams." not in name]
    assert len(averages) > 5
    for name in averages:
        np.testing.assert_array_equal(taken["optimizers"][name], source["optimizers"][name])
    assert not np.array_equal(taken["keys"]["agent"], source["keys"]["agent"])


def test_entries_of_observations_that_are_no_vectors_are_refused(tmp_path):
    config = tiny_config("sbx_sac", "tests/TinyDict-v0", "env.kwargs.picture=false")
    with pytest.raises(ConfigError, match="kind is Discrete of shape"):
        train_run(tmp_path / "run", config)


def test_nan_ends_the_run_with_one_line(tmp_path):
    config = tiny_config("sbx_sac", REACH, "algo.hyperparams.learning_rate=1e20")
    with pytest.raises(RunError, match="training has diverged"):
        train_run(tmp_path / "run", config)


@pytest.mark.parametrize("file_format", ["sb3", "onnx", "torchscript"])
def test_its_policy_cannot_be_exported(run, tmp_path, file_format):
    policy = load_policy(run.best)
    with pytest.raises(ConfigError, match="computes with JAX, and its policy cannot be written"):
        export_policy(policy, policy.config, tmp_path / "file", file_format, {"step": 1})


def test_a_zip_of_sbx_is_not_imported(tmp_path):
    with pytest.raises(ConfigError, match="holds pickled networks"):
        import_sb3([str(tmp_path / "model.zip"), "--algo", "sbx_sac", "--env", "Pendulum-v1"])


def test_what_has_no_effect_is_said_once_each(tmp_path, caplog):
    config = tiny_config("sbx_ppo", REACH, "fast=true", "n_timesteps=32", "num_threads=2")
    with caplog.at_level("INFO"):
        train_run(tmp_path / "run", config)
    text = caplog.text
    assert text.count("fast=true has no effect: sbx_ppo computes with JAX") == 1
    assert text.count("updates are not recorded") == 1
    assert "threads: 1 (sbx_ppo computes with JAX" in text


def test_a_checkpoint_names_the_versions_it_depends_on(run):
    about = run.checkpoints().load_newest().about
    assert {"jax", "jaxlib", "flax", "optax", "sbx-rl"} <= about["fingerprint"].keys()
    assert json.dumps(about["unsaved"]) == "[]"


def test_the_weights_of_a_bundle_are_named_by_their_place(run):
    names = bundle_weights(run.best)
    assert "actor_state.params.params.Dense_0.kernel" in names
    assert any(name.startswith("qf_state.target_params.") for name in names)
