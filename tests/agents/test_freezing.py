"""Frozen parts of the networks keep their weights bit for bit, whatever else is learned."""

import pytest
import torch
from support.training import bundle_weights, start_run, tiny_config, train_run

from rlzoo_plus.artifacts.bundle import load_bundle
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.exp_manager import ExpManager

pytestmark = pytest.mark.training
REACH = "tests/TinyReach-v0"
# Learns from the first step, so that the checkpoint at the end is of many updates.
SHORT = ("n_timesteps=128", "eval.every_steps=64", "eval.at_start=true", "checkpoint.keep=99")


def _weights_over_time(path, config):
    run_dir, _ = train_run(path, config.model_copy(update={"checkpoint": _often(config)}))
    store = run_dir.checkpoints()
    states = [store.load(step).state["agent"]["parameters"]["policy"] for step in store.steps()]
    return states[0], bundle_weights(run_dir.final)


def _often(config):
    return config.checkpoint.model_copy(update={"every_steps": 32, "keep": 99})


def _changed(before, after):
    return {name for name in before if (before[name] != after[name]).any()}


@pytest.mark.parametrize(
    ("algo", "names", "frozen", "moving"),
    [
        ("ppo", "policy_net", "mlp_extractor.policy_net.", "mlp_extractor.value_net.0.weight"),
        ("a2c", "mlp_extractor.value_net.0", "mlp_extractor.value_net.0.", "action_net.weight"),
        ("sac", "actor.latent_pi", "actor.latent_pi.", "actor.mu.weight"),
        ("sac", "critic.qf0", ("critic.qf0.", "critic_target.qf0."), "critic_target.qf1.0.weight"),
        ("td3", "actor", ("actor.", "actor_target."), "critic.qf0.0.weight"),
        ("crossq", "actor.latent_pi", "actor.latent_pi.", "critic.qf0.1.weight"),
    ],
)
def test_frozen_parts_stay_bitwise_equal_and_the_others_learn(
    tmp_path, algo, names, frozen, moving
):
    config = tiny_config(algo, REACH, *SHORT, f"freeze=[{names}]")
    before, after = _weights_over_time(tmp_path / "run", config)
    held = {name for name in before if name.startswith(frozen)}
    assert held
    assert not held & _changed(before, after)
    assert moving in _changed(before, after)


def test_a_features_extractor_is_frozen_with_its_targets_and_copies(tmp_path):
    overrides = ("env.kwargs.discrete=true", "freeze=[features_extractor]", "device=cpu")
    small = "network.features_extractor_kwargs={features_dim: 4}"
    config = tiny_config("dqn", "tests/TinyImage-v0", *SHORT, *overrides, small)
    before, after = _weights_over_time(tmp_path / "run", config)
    held = {name for name in before if "features_extractor" in name}
    assert {name.split(".")[0] for name in held} == {"q_net", "q_net_target"}
    assert not held & _changed(before, after)
    assert "q_net.q_net.2.weight" in _changed(before, after)


def test_nothing_is_computed_for_what_is_frozen(tmp_path):
    config = tiny_config("ppo", REACH, "freeze=[policy_net]")
    run_dir, _ = train_run(tmp_path / "run", config)
    (step,) = run_dir.checkpoints().steps()[-1:]
    parameters = run_dir.checkpoints().load(step).state["agent"]["parameters"]
    n_learned = len(parameters["policy.optimizer"]["state"])
    shared = {name for name in parameters["policy"] if "features_extractor" in name}
    frozen = {name for name in parameters["policy"] if "policy_net" in name}
    assert n_learned == len(parameters["policy"].keys() - shared - frozen)


@pytest.mark.parametrize(
    ("algo", "names", "message"),
    [
        ("ppo", "policy_nett", "unknown part in freeze 'policy_nett'. Did you mean 'policy_net'"),
        ("ppo", "action_net,mlp_extractor,value_net,log_std", "leaves policy.optimizer nothing"),
        ("sac", "critic", "leaves critic.optimizer nothing to learn"),
        ("trpo", "policy_net", "TRPO changes all weights of its policy by one step"),
        ("ars", "action_net", "ARS changes all weights of its policy by one step"),
    ],
)
def test_what_cannot_be_frozen_is_refused(tmp_path, algo, names, message):
    config = tiny_config(algo, REACH, f"freeze=[{names}]")
    with pytest.raises(ConfigError, match=message):
        ExpManager(config, start_run(tmp_path / "run", config)).train()


def test_a_bundle_says_nothing_of_what_was_frozen(tmp_path):
    run_dir, _ = train_run(tmp_path / "run", tiny_config("ppo", REACH, "freeze=[policy_net]"))
    assert "freeze" not in load_bundle(run_dir.final).config
    assert torch.is_grad_enabled()
