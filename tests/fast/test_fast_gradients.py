"""Hand-written gradients are those of autograd: random networks and minibatches, 64 bits."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import TQC
from stable_baselines3 import A2C, PPO, SAC, TD3
from torch import nn

from rlzoo_plus.fast.handwritten.adam_steps import FusedAdam
from rlzoo_plus.fast.handwritten.off_policy_gradients import (
    FastSACUpdate,
    FastTD3Update,
    FastTQCUpdate,
)
from rlzoo_plus.fast.handwritten.on_policy_gradients import FastA2CUpdate, FastPPOUpdate
from rlzoo_plus.fast.handwritten.products import Single

MOST_RELATIVE_ERROR = 1e-9
ACTIVATIONS = [nn.Tanh, nn.ReLU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.GELU, nn.Sigmoid, nn.Mish]
N_DRAWS = 12


class Nowhere(gym.Env):
    """An environment that has spaces only."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}


@pytest.fixture(autouse=True)
def in_double_precision(monkeypatch):
    """Where SB3 makes numbers of 32 bits, they keep their 64 bits here."""
    for name in ("policies", "torch_layers"):
        module = f"stable_baselines3.common.{name}.preprocess_obs"
        monkeypatch.setattr(module, lambda obs, *_, **__: obs, raising=False)


def assert_same(found, expected, names):
    whole = float(sum(g.norm() ** 2 for g in expected) ** 0.5)
    for name, mine, theirs in zip(names, found, expected, strict=True):
        assert mine.shape == theirs.shape, name
        error = float((mine - theirs).abs().max())
        assert error <= MOST_RELATIVE_ERROR * whole, f"{name}: {error / whole:.1e}"


def random_agent(algorithm, draw, **arguments):
    """Return an agent with random shapes, layers and weights, of 64 bits."""
    shape = (int(draw.integers(1, 40)),) if draw.random() < 0.8 else (3, 5)
    observation = spaces.Box(-np.inf, np.inf, shape, np.float32)
    use_sde = bool(draw.random() < 0.4)
    if use_sde or draw.random() < 0.5:
        action = spaces.Box(-1.0, 1.0, (int(draw.integers(1, 40)),), np.float32)
    else:
        action = spaces.Discrete(int(draw.integers(2, 9)), start=0)
    layers = [[int(draw.integers(1, 50)) for _ in range(draw.integers(0, 4))] for _ in ("pi", "vf")]
    policy = {
        "activation_fn": ACTIVATIONS[draw.integers(len(ACTIVATIONS))],
        "net_arch": {"pi": layers[0], "vf": layers[1]},
        "share_features_extractor": bool(draw.random() < 0.5),
        "ortho_init": False,
    }
    if use_sde:
        names = ("full_std", "use_expln", "squash_output")
        policy |= {name: bool(draw.random() < 0.5) for name in names}
    agent = algorithm(
        "MlpPolicy",
        Nowhere(observation, action),
        policy_kwargs=policy,
        use_sde=use_sde,
        device="cpu",
        ent_coef=float(draw.choice([0.0, 0.02])),
        vf_coef=0.4,
        normalize_advantage=bool(draw.random() < 0.5),
        seed=int(draw.integers(1000)),
        **arguments,
    )
    agent.policy.double()
    with torch.no_grad():
        for parameter in agent.policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return agent


def random_batch(agent, update, size):
    """Return a minibatch whose ratios and values are on both sides of the clip ranges."""
    shape = agent.observation_space.shape
    observations = torch.randn(size, *shape, dtype=torch.double)
    if isinstance(agent.action_space, spaces.Discrete):
        actions = torch.randint(0, int(agent.action_space.n), (size, 1)).double()
    else:
        actions = torch.rand(size, *agent.action_space.shape, dtype=torch.double) * 1.8 - 0.9
    with torch.no_grad():
        values, log_prob, _ = update._evaluate(observations, actions)
    columns = [
        values + 0.4 * torch.randn_like(values),
        log_prob + 0.4 * torch.randn_like(log_prob),
        torch.randn(size, dtype=torch.double),
        torch.randn(size, dtype=torch.double),
    ]
    return [observations, actions, *columns]


def check_on_policy(agent, update, size, ranges):
    batch = random_batch(agent, update, size)
    coefficients = {"ent_coef": agent.ent_coef, "vf_coef": agent.vf_coef}
    numbers = SimpleNamespace(**coefficients, **update.factors(size), **ranges)
    loss, *_ = update.loss(batch, numbers)
    expected = torch.autograd.grad(loss, update._parameters)
    rows = [part.reshape(size, -1) for part in batch[:2]]
    found, logged = update.gradients([*rows, *batch[2:]], numbers)
    names = [name for name, _ in agent.policy.named_parameters()]
    assert_same(found, expected, names)
    return update.loss(batch, numbers), logged


@pytest.mark.parametrize("number", range(N_DRAWS))
def test_gradients_of_ppo_are_those_of_autograd(number):
    draw = np.random.default_rng(number)
    torch.manual_seed(number)
    clips_values = bool(draw.random() < 0.5)
    agent = random_agent(
        PPO, draw, clip_range_vf=0.2 if clips_values else None, n_steps=8, batch_size=8
    )
    update = FastPPOUpdate(agent)
    ranges = {"clip": 0.2, "clip_low": 0.8, "clip_high": 1.2, "clip_vf": 0.2, "clip_vf_low": -0.2}
    size = int(draw.integers(2, 70))
    logged, (entropy, means, beyond) = check_on_policy(agent, update, size, ranges)
    _, policy_loss, value_loss, entropy_loss, clip_fraction, kl = (x.item() for x in logged)
    assert -float(means[0]) == pytest.approx(policy_loss, rel=1e-9)
    assert float(means[1]) == pytest.approx(value_loss, rel=1e-9)
    assert float(means[2]) == pytest.approx(kl, rel=1e-7)
    assert float(entropy) == pytest.approx(entropy_loss, rel=1e-9)
    assert float(beyond) == pytest.approx(clip_fraction, rel=1e-6)


@pytest.mark.parametrize("number", range(N_DRAWS))
def test_gradients_of_a2c_are_those_of_autograd(number):
    draw = np.random.default_rng(100 + number)
    torch.manual_seed(number)
    agent = random_agent(A2C, draw)
    update = FastA2CUpdate(agent)
    logged, found = check_on_policy(agent, update, int(draw.integers(2, 70)), {})
    _, entropy_loss, policy_loss, value_loss = (x.item() for x in logged)
    expected = entropy_loss, policy_loss, value_loss
    assert tuple(float(x) for x in found) == pytest.approx(expected, rel=1e-9)


def random_off_policy_agent(algorithm, draw):
    """Return an agent with random shapes, layers and weights, of 64 bits."""
    shape = (int(draw.integers(1, 30)),) if draw.random() < 0.8 else (3, 5)
    space = box = spaces.Box(-np.inf, np.inf, shape, np.float32)
    has_parts = draw.random() < 0.3
    if has_parts:
        space = spaces.Dict({"zeta": box, "alpha": spaces.Box(-np.inf, np.inf, (2,), np.float32)})
    n_actions = int(draw.integers(1, 20))
    actor, critic = ([int(draw.integers(1, 50)) for _ in range(draw.integers(1, 4))] for _ in "ab")
    policy = {
        "activation_fn": ACTIVATIONS[draw.integers(len(ACTIVATIONS))],
        "net_arch": {"pi": actor, "qf": critic},
        "n_critics": int(draw.integers(1, 4)),
    }
    arguments = {}
    if algorithm is not TD3:
        arguments["use_sde"] = bool(draw.random() < 0.5)
        arguments["ent_coef"] = "auto" if draw.random() < 0.7 else 0.1
        policy |= {"use_expln": bool(draw.random() < 0.5)}
        policy |= {"clip_mean": float(draw.choice([0.5, 2.0]))}
    if algorithm is TQC:
        policy["n_quantiles"] = int(draw.integers(1, 30))
        arguments["top_quantiles_to_drop_per_net"] = int(draw.integers(policy["n_quantiles"]))
    agent = algorithm(
        "MultiInputPolicy" if has_parts else "MlpPolicy",
        Nowhere(space, spaces.Box(-1.0, 1.0, (n_actions,), np.float32)),
        **{"policy_kwargs": policy, "device": "cpu", "buffer_size": 10, **arguments},
        seed=int(draw.integers(1000)),
    )
    with torch.no_grad():
        for parameter in agent.policy.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.3)
    return agent


def random_observations(space, size):
    if isinstance(space, spaces.Dict):
        return {name: random_observations(part, size) for name, part in space.spaces.items()}
    return torch.randn(size, *space.shape)


@pytest.mark.parametrize("number", range(N_DRAWS))
@pytest.mark.parametrize("algorithm", [SAC, TQC, TD3])
def test_gradients_of_actors_and_critics_are_those_of_autograd(algorithm, number, monkeypatch):
    updates = {SAC: FastSACUpdate, TQC: FastTQCUpdate, TD3: FastTD3Update}
    for name in (
        "handwritten.off_policy_gradients.make_fast_steps",
        "recorded.off_policy.make_steps",
    ):
        monkeypatch.setattr(f"rlzoo_plus.fast.{name}", in_one_pass)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.double)
    try:
        draw = np.random.default_rng(200 + number)
        torch.manual_seed(number)
        agent = random_off_policy_agent(algorithm, draw)
        update = updates[algorithm](agent)
        size = int(draw.integers(2, 40))
        n_actions = agent.action_space.shape[0]
        batch = SimpleNamespace(
            observations=random_observations(agent.observation_space, size),
            next_observations=random_observations(agent.observation_space, size),
            actions=torch.rand(size, n_actions) * 2 - 1,
            rewards=3 * torch.randn(size, 1),
            dones=(torch.rand(size, 1) < 0.2).double(),
            discounts=torch.rand(size, 1) if draw.random() < 0.3 else None,
            ent_coef=getattr(agent, "ent_coef_tensor", None),
        )
        numbers = SimpleNamespace(
            **{"gamma": 0.97, "target_entropy": -2.0},
            **{"noise": 0.4, "noise_low": -0.5, "noise_high": 0.5},
        )
        found, expected = update.both_gradients(batch, numbers)
    finally:
        torch.set_default_dtype(before)
    assert found.keys() == expected.keys()
    n_parameters = len(list(agent.actor.parameters())) + len(list(agent.critic.parameters()))
    assert len(found) == n_parameters + (getattr(agent, "ent_coef_optimizer", None) is not None)
    for part in ("critic", "actor", "log_ent"):
        names = [name for name in found if name.startswith(part)]
        if names:
            assert_same([found[n] for n in names], [expected[n] for n in names], names)


def in_one_pass(optimizer, parameters, name):
    """Return the steps that 32 bits would get."""
    return FusedAdam(optimizer, parameters, name)


def test_a_wrong_gradient_would_be_found(monkeypatch):
    draw = np.random.default_rng(1)
    agent = random_agent(A2C, draw)
    update = FastA2CUpdate(agent)
    monkeypatch.setattr(Single, "of_weight", lambda self, g: g.t() @ self.x * 1.001)
    with pytest.raises(AssertionError):
        check_on_policy(agent, update, 32, {})
