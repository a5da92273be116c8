"""Residual blocks in place of hidden layers: where they are, what they compute, and refusals."""

import numpy as np
import pytest
import torch
from support.training import tiny_config
from torch import nn

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.algorithms.residual_blocks import ResidualBlock
from rlzoo_plus.commands import dispatch
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

SIMBA = ("network=simba", "network.net_arch=[12,12]")
DISCRETE = ("dqn", "qrdqn", "sac_discrete", "maskable_ppo")
ENCODER = "Linear ResidualBlock ResidualBlock LayerNorm"


def config_of(algo, *overrides):
    discrete = ("env.kwargs.discrete=true",) if algo in DISCRETE else ()
    return tiny_config(algo, "tests/TinyReach-v0", *discrete, *overrides)


def agent_of(algo, *overrides):
    config = config_of(algo, *overrides)
    return make_agent(config, make_train_env(config, 1), 1)


def kinds(layers):
    return " ".join(type(layer).__name__ for layer in layers)


def networks_of(policy):
    """Return hidden and output layers of each network, targets included, by name."""
    names = ("latent_pi", "mu", "policy_net", "value_net", "q_net", "quantile_net")
    return {
        name: kinds(module)
        for name, module in policy.named_modules()
        if isinstance(module, nn.Sequential) and name.rpartition(".")[2].startswith((*names, "qf"))
    }


@pytest.mark.parametrize(
    "algo", ["ppo", "a2c", "trpo", "recurrent_ppo", "sac", "td3", "ddpg", "tqc", *DISCRETE]
)
def test_each_hidden_layer_of_each_network_is_a_block_that_learns(algo):
    agent = agent_of(algo, *SIMBA)
    found = networks_of(agent.policy)
    assert len(found) >= 2
    for name, layers in found.items():
        is_hidden = name.rpartition(".")[2] in ("latent_pi", "policy_net", "value_net")
        output = "" if is_hidden else " Linear Tanh" if name.endswith("mu") else " Linear"
        assert layers == ENCODER + output, name
    parts = agent.policy.modules()
    optimizers = [p.optimizer for p in parts if getattr(p, "optimizer", None) is not None]
    groups = [group for optimizer in optimizers for group in optimizer.param_groups]
    learned = {id(p) for group in groups for p in group["params"]}
    own = [n for n, p in agent.policy.named_parameters() if id(p) not in learned]
    assert all("target" in name for name in own), own
    assert {group["weight_decay"] for group in groups} == {0.01}


def test_observations_are_normalized_and_rewards_are_not():
    normalizer = agent_of("sac", *SIMBA).get_vec_normalize_env()
    assert (normalizer.norm_obs, normalizer.norm_reward) == (True, False)
    assert agent_of("sac", *SIMBA, "normalize=false").get_vec_normalize_env() is None


@pytest.mark.parametrize("has_norm", [True, False])
def test_a_block_adds_what_its_layers_make(has_norm):
    torch.manual_seed(0)
    block, values = ResidualBlock(6, nn.ReLU, has_norm=has_norm), torch.randn(5, 6)
    first, last = (layer for layer in block.layers if isinstance(layer, nn.Linear))
    assert first.weight.shape == (24, 6)
    x = values.numpy().astype(float)
    centred = x - x.mean(axis=1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) if has_norm else x
    hidden = np.maximum(normed @ first.weight.detach().numpy().T, 0)
    expected = x + hidden @ last.weight.detach().numpy().T
    np.testing.assert_allclose(block(values).detach().numpy(), expected, atol=1e-5)


def test_a_plain_block_has_no_normalisation():
    policy = agent_of("td3", "network=resnet", "network.net_arch=[12]").policy
    assert kinds(policy.actor.mu) == "Linear ResidualBlock Linear Tanh"
    assert kinds(policy.actor.mu[1].layers) == "Linear ReLU Linear"


def test_actor_and_critic_have_sizes_of_their_own():
    policy = agent_of(
        "ppo", "network=simba", "network.net_arch={actor: [6], critic: [8, 8]}"
    ).policy
    assert kinds(policy.mlp_extractor.policy_net) == "Linear ResidualBlock LayerNorm"
    assert policy.mlp_extractor.value_net[-1].normalized_shape == (8,)


@pytest.mark.parametrize(
    ("algo", "overrides", "text"),
    [
        ("crossq", ("network=simba",), "crossq has networks of its own kind"),
        ("ars", ("network.blocks=simba",), "ars has networks of its own kind"),
        ("sac", ("network=simba", "network.dropout=0.1"), "has no layer_norm or dropout"),
        ("sac", ("network=simba", "export.sb3_zip=true"), "Stable-Baselines3 has no such"),
        ("sac", ("network.blocks=cnn",), "simba"),
    ],
)
def test_what_does_not_fit_is_refused(algo, overrides, text):
    with pytest.raises(ConfigError, match=text):
        config_of(algo, *overrides)


@pytest.mark.parametrize("sizes", ["[12,8]", "[]"])
def test_blocks_of_several_widths_are_refused(sizes):
    with pytest.raises(ConfigError, match="all blocks of a network are of one width"):
        agent_of("sac", "network=simba", f"network.net_arch={sizes}")


@pytest.mark.slow
@pytest.mark.training
def test_a_run_with_simba_resumes_bit_for_bit_and_its_policy_is_exported(tmp_path, capsys):
    task = [
        "algo=sac",
        "env=pendulum",
        *SIMBA,
        "n_timesteps=200",
        "num_threads=1",
        "eval.episodes=1",
    ]
    run = tmp_path / "run"
    assert dispatch.run("train", [*task, f"run_dir={run}"]) == 0
    assert dispatch.run("evaluate", [str(run), "--episodes", "2"]) == 0
    assert (
        dispatch.run(
            "export", [str(run), "--format", "onnx", "--out", str(tmp_path / "policy.onnx")]
        )
        == 0
    )
    assert dispatch.run("export", [str(run), "--format", "sb3"]) == 2
    assert "network.blocks=simba: Stable-Baselines3 has no such" in " ".join(
        capsys.readouterr().err.split()
    )
    assert dispatch.run("verify-resume", [*task, "--kills", "1"]) == 0
    assert "identical" in capsys.readouterr().out
