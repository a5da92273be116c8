"""`fast`: nearly the same weights, exact resumes, and fallbacks that say why."""

import copy
import logging

import numpy as np
import pytest
import torch
from sb3_contrib import TQC
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from support.resuming import assert_same_in_pieces, train_with_a_kill
from support.training import assert_same_tree, bundle_weights, tiny_config, train_run

from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.fast.door import Accelerated
from rlzoo_plus.fast.handwritten.fast_updates import FastUpdates
from rlzoo_plus.fast.handwritten.products import Single

pytestmark = pytest.mark.training

TINY, GOAL, DISCRETE = "tests/TinyReach-v0", "tests/TinyGoal-v0", "CartPole-v1"
SMALL = {"n_steps": 64, "batch_size": 48, "n_epochs": 3}  # the last minibatch is smaller
OFF_POLICY = {"learning_starts": 20, "batch_size": 30, "train_freq": 8, "gradient_steps": 4}
CASES = {
    "ppo-discrete": (PPO, DISCRETE, {**SMALL, "ent_coef": 0.01}),
    "ppo-value-clip": (PPO, TINY, {**SMALL, "clip_range_vf": 0.2, "target_kl": 0.05}),
    "ppo-gsde": (PPO, TINY, {**SMALL, "use_sde": True, "sde_sample_freq": 4}),
    "sac": (SAC, TINY, OFF_POLICY),
    "sac-gsde": (SAC, TINY, {**OFF_POLICY, "use_sde": True, "ent_coef": 0.1}),
    "td3": (TD3, TINY, OFF_POLICY),
    "tqc": (TQC, TINY, {**OFF_POLICY, "policy_kwargs": {"net_arch": [24], "n_quantiles": 7}}),
    "sac-goal": (SAC, GOAL, OFF_POLICY),
    "td3-goal": (TD3, GOAL, OFF_POLICY),
    "a2c": (A2C, TINY, {"n_steps": 16}),
    "a2c-adam": (A2C, DISCRETE, {"n_steps": 16, "use_rms_prop": False}),
}


def train(algorithm, env, arguments, steps, updates):
    torch.set_num_threads(1)
    venv = make_vec_env(env, 4, seed=0)
    kind = with_iteration_hook(algorithm, Accelerated)
    # SB3 adds to the arguments of the policy.
    policy = "MultiInputPolicy" if env == GOAL else "MlpPolicy"
    agent = kind(policy, venv, seed=0, device="cpu", **copy.deepcopy(arguments))
    agent.recorded = updates
    agent.learn(steps)
    return agent


@pytest.mark.parametrize("name", CASES)
def test_first_updates_are_those_of_stable_baselines3_up_to_rounding(name):
    algorithm, env, arguments = CASES[name]
    # Later, rounding changes actions, and so what is learned from.
    steps = 4 * arguments["n_steps"] if "n_steps" in arguments else 64
    exact = train(algorithm, env, arguments, steps, None)
    fast = train(algorithm, env, arguments, steps, FastUpdates())
    assert not fast.recorded.not_fast
    assert fast.recorded.n_recorded
    for (key, mine), theirs in zip(
        fast.policy.state_dict().items(), exact.policy.state_dict().values(), strict=True
    ):
        # Adam moves a weight whose gradient is next to nothing either way.
        assert float((mine - theirs).abs().mean()) < 2e-5, key
    logged, expected = (agent.logger.name_to_value for agent in (fast, exact))
    assert list(logged) == list(expected)
    for key in expected:
        if key.startswith("train/"):
            assert logged[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5), key


@pytest.mark.parametrize(
    "algo",
    ["ppo", "sac", *(pytest.param(a, marks=pytest.mark.slow) for a in ("a2c", "td3", "tqc"))],
)
def test_a_run_in_pieces_is_the_run_as_a_whole(algo, tmp_path):
    config = tiny_config(algo, TINY, "fast=true", "normalize=true", "n_timesteps=160")
    assert_same_in_pieces(tmp_path, config, 2 if algo in ("ppo", "a2c") else 9)


LARGE = {**OFF_POLICY, "policy_kwargs": {"net_arch": [160, 130]}}
ROUNDED = {
    "sac": (SAC, {}),
    "sac-gsde": (SAC, {"use_sde": True}),
    "td3": (TD3, {}),
    "tqc": (TQC, {}),
}


@pytest.mark.parametrize("name", ROUNDED)
def test_updates_with_products_in_bfloat16_are_near_those_of_stable_baselines3(name):
    algorithm, arguments = ROUNDED[name]
    arguments = {**LARGE, **arguments, "learning_rate": 1e-4}
    exact, fast, rounded = (
        train(algorithm, TINY, arguments, 64, updates)
        for updates in (None, FastUpdates(), FastUpdates(rounds=True))
    )
    assert not rounded.recorded.not_fast
    logged, expected = (agent.logger.name_to_value for agent in (rounded, exact))
    assert logged["train/critic_loss"] == pytest.approx(expected["train/critic_loss"], rel=0.05)
    for name, theirs in exact.policy.state_dict().items():
        mine, full = (agent.policy.state_dict()[name] for agent in (rounded, fast))
        # Eight steps of Adam move a weight by no more than 8e-4, and most by more than 1e-4.
        assert float((mine - theirs).abs().mean()) < 5e-5, name
        if name == "critic.qf0.2.weight":  # between the two hidden layers
            assert float((full - theirs).abs().mean()) < 0.1 * float((mine - theirs).abs().mean())


def test_small_layers_are_never_rounded():
    arguments = {**OFF_POLICY, "policy_kwargs": {"net_arch": [127, 200]}}
    fast, rounded = (
        train(SAC, TINY, arguments, 64, FastUpdates(rounds=rounds)) for rounds in (False, True)
    )
    assert_same_tree(
        *(
            {name: tensor.numpy() for name, tensor in agent.policy.state_dict().items()}
            for agent in (fast, rounded)
        )
    )


@pytest.mark.parametrize(
    "algo", ["sac", *(pytest.param(a, marks=pytest.mark.slow) for a in ("td3", "tqc"))]
)
def test_a_run_with_products_in_bfloat16_in_pieces_is_the_run_as_a_whole(algo, tmp_path):
    config = tiny_config(
        *(algo, TINY, "fast=bfloat16", "normalize=true", "n_timesteps=160"),
        "network.net_arch=[128,128]",
    )
    assert_same_in_pieces(tmp_path, config, 9)


def test_bfloat16_names_itself_where_it_has_no_effect(caplog):
    train(DQN, DISCRETE, {"learning_starts": 20}, 64, FastUpdates(rounds=True))
    assert "fast=bfloat16 has no effect on updates: DQN" in caplog.text


def test_on_policy_bfloat16_is_fast_and_the_run_says_so(caplog):
    fast, rounded = (
        train(*CASES["a2c"], 320, FastUpdates(rounds=rounds)) for rounds in (False, True)
    )
    assert "fast=bfloat16 is fast=true: A2C" in caplog.text
    for mine, theirs in zip(fast.policy.parameters(), rounded.policy.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_processor_without_such_products_is_told(monkeypatch, caplog):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": False})
    train(SAC, TINY, LARGE, 64, FastUpdates(rounds=True))
    assert "no instructions for products of bfloat16" in caplog.text


def test_an_older_torch_cannot_tell_what_the_processor_has(monkeypatch, caplog):
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    agent = train(SAC, TINY, LARGE, 64, FastUpdates(rounds=True))
    assert not agent.recorded.not_fast
    assert "no instructions" not in caplog.text


def test_a_clip_range_that_ends_at_zero_is_no_reason_to_fall_back():
    clip = {"clip_range": lambda remaining: 0.2 * remaining}
    agent = train(PPO, DISCRETE, {**SMALL, **clip}, 4 * SMALL["n_steps"], FastUpdates())
    assert not agent.recorded.not_fast


def test_a_killed_run_is_the_run_as_a_whole(tmp_path):
    config = tiny_config(
        *("ppo", TINY, "fast=true", "algo.hyperparams.use_sde=true", "n_timesteps=192"),
        "checkpoint.every_steps=64",
    )
    whole, _ = train_run(tmp_path / "whole", config)
    killed, _ = train_with_a_kill(tmp_path / "killed", config, 4)
    assert run_digests(killed) == run_digests(whole)


def test_an_unknown_policy_trains_exactly_and_the_run_says_why(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    overrides = ("network.features_extractor=attention", "n_timesteps=96")
    weights = []
    for name in ("true", "false"):
        config = tiny_config("ppo", TINY, *overrides, f"fast={name}")
        run_dir, _ = train_run(tmp_path / name, config)
        weights.append(bundle_weights(run_dir.path / "final"))
    assert_same_tree(*weights)
    assert "fast=true has no effect on updates" in caplog.text


def test_fast_is_part_of_what_a_run_is():
    config = tiny_config("ppo", TINY)
    fast = tiny_config("ppo", TINY, "fast=true")
    assert "fast" not in config.model_dump()
    assert fast.model_dump()["fast"] is True
    assert config_hash(fast) != config_hash(config)
    rounded = tiny_config("sac", TINY, "fast=bfloat16")
    assert rounded.model_dump()["fast"] == "bfloat16"
    with pytest.raises(ConfigError, match="fast=bfloat17"):
        tiny_config("sac", TINY, "fast=bfloat17")


def test_a_wrong_gradient_is_found_when_a_training_starts(monkeypatch):
    monkeypatch.setattr(Single, "of_weight", lambda self, g: g.t() @ self.x * 1.1)
    fast = train(*CASES["a2c"], 320, FastUpdates())
    assert "not that of autograd" in fast.recorded.not_fast
    exact = train(*CASES["a2c"], 320, None)
    for mine, theirs in zip(fast.policy.parameters(), exact.policy.parameters(), strict=True):
        assert np.array_equal(mine.detach().numpy(), theirs.detach().numpy())
