"""Layer normalisation and dropout of critics: where they are, and what refuses them."""

import pytest
import torch
from support.training import tiny_config
from torch import nn

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

NORM, DROQ = ("network.layer_norm=critic",), ("network.layer_norm=critic", "network.dropout=0.01")
PLAIN = "Linear ReLU Linear ReLU"
NORMED = "Linear LayerNorm ReLU Linear LayerNorm ReLU"
DROPPED = "Linear Dropout LayerNorm ReLU Linear Dropout LayerNorm ReLU"


def agent_of(algo, *overrides):
    discrete = ("env.kwargs.discrete=true",) if algo in ("dqn", "qrdqn", "sac_discrete") else ()
    layers = "network.net_arch=[12,8]", "network.activation=relu"
    config = tiny_config(algo, "tests/TinyReach-v0", *discrete, *layers, *overrides)
    return make_agent(config, make_train_env(config, 1), 1)


def kinds(layers):
    names = [type(layer).__name__ for layer in layers]
    return " ".join(name for name in names if name != "BatchRenorm1d")


def critics_of(policy):
    """Return the hidden and output layers of each network that gives values, targets included."""
    found = [part for part in policy.modules() if hasattr(part, "q_networks")]
    if found:
        return [layers for part in found for layers in part.q_networks]
    names = ("q_net", "quantile_net")
    nets = [net for name in names if (net := getattr(policy, name, None)) is not None]
    nets += [net for name in names if (net := getattr(policy, f"{name}_target", None)) is not None]
    return [getattr(net, name) for net in nets for name in names if hasattr(net, name)]


@pytest.mark.parametrize(
    "algo", ["sac", "td3", "ddpg", "tqc", "crossq", "dqn", "qrdqn", "sac_discrete"]
)
@pytest.mark.parametrize(("overrides", "expected"), [(NORM, NORMED), (DROQ, DROPPED)])
def test_layers_follow_each_hidden_linear_layer_of_each_critic(algo, overrides, expected):
    agent = agent_of(algo, *overrides)
    critics = critics_of(agent.policy)
    assert len(critics) >= 2
    assert {kinds(layers) for layers in critics} == {f"{expected} Linear"}
    assert [m.normalized_shape for m in critics[0] if isinstance(m, nn.LayerNorm)] == [(12,), (8,)]
    owners = (getattr(agent.policy, name, None) for name in ("critic", "q_net"))
    optimizer = next(own.optimizer for own in (*owners, agent.policy) if hasattr(own, "optimizer"))
    learned = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert all(id(p) in learned for p in critics[0].parameters())
    if hasattr(agent, "actor"):
        actor = agent.actor.latent_pi if hasattr(agent.actor, "latent_pi") else agent.actor.mu[:4]
        assert kinds(actor) == PLAIN


def test_the_actor_has_them_too_if_all_have():
    assert kinds(agent_of("sac", "network.layer_norm=all").actor.latent_pi) == NORMED
    assert kinds(agent_of("td3", "network.layer_norm=all").actor.mu) == f"{NORMED} Linear Tanh"


def test_without_them_weights_and_random_numbers_are_as_before():
    plain, normed = agent_of("sac").critic, agent_of("sac", *DROQ).critic
    weights = [[m.weight for m in c.qf0 if isinstance(m, nn.Linear)] for c in (plain, normed)]
    assert all(map(torch.equal, *weights))


@pytest.mark.parametrize(
    ("algo", "override", "text"),
    [
        ("ppo", "network.layer_norm=critic", "ppo is not off-policy"),
        ("ppo", "network.dropout=0.1", "network.dropout=0.1: ppo is not off-policy"),
        ("sac", "network.layer_norm=actor", "critic"),
        ("sac", "network.dropout=1", "less than 1"),
    ],
)
def test_what_does_not_fit_is_refused(algo, override, text):
    with pytest.raises(ConfigError, match=text):
        tiny_config(algo, "tests/TinyReach-v0", override)


def test_stable_baselines3_has_no_such_network():
    with pytest.raises(ConfigError, match=r"export\.sb3_zip=true: Stable-Baselines3 has no such"):
        tiny_config("sac", "tests/TinyReach-v0", *NORM, "export.sb3_zip=true")
