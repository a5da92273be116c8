"""The loss for acting otherwise in mirrored situations: its value, its effect, what is refused."""

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from support.training import make_config, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.commands import dispatch
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.errors import ConfigError

SHORT = (
    *("env=cartpole_bullet", "tuned=none", "network.net_arch=[16]", "num_threads=1", "device=cpu"),
    *("eval.episodes=1", "n_timesteps=256", "env.kwargs.episode_s=1", "normalize=false"),
)
OF_ALGO = {
    "ppo": ("algo.hyperparams.n_steps=64", "algo.hyperparams.batch_size=32"),
    "a2c": ("algo.hyperparams.n_steps=8",),
}
LOSS = "algo.symmetry=loss"
MIRRORED = np.array([-1, -1, -1, 1, -1], np.float32)


def config_of(algo, *overrides):
    words = (f"algo={algo}", *SHORT, *OF_ALGO[algo], LOSS, *overrides)
    return make_config(*{word.partition("=")[0]: word for word in words}.values())


def agent_of(algo, *overrides):
    config = config_of(algo, *overrides)
    torch.set_num_threads(1)
    return make_agent(config, make_train_env(config, 1), 1)


def hook_of(agent):
    """Return the loss of an agent."""
    (hook,) = agent.policy.optimizer._optimizer_step_pre_hooks.values()
    return hook.__self__


def some_observations(count=200):
    seen = np.random.default_rng(0).normal(0.0, 0.3, (count, 5)).astype(np.float32)
    seen[:, 3] = 1.0
    return seen


def distance(agent, seen):
    """Return the mean squared distance of the policy's actions on both sides."""
    one, other = (agent.predict(s, deterministic=True)[0] for s in (seen, seen * MIRRORED))
    return float(((one + other) ** 2).sum(axis=1).mean())


def test_of_actions_it_is_their_mean_squared_distance():
    agent, seen = agent_of("ppo"), some_observations()
    with torch.no_grad():
        agent.policy.action_net.weight *= 20.0
    expected = distance(agent, seen)
    assert expected > 0.01
    assert hook_of(agent).asymmetry(torch.tensor(seen)).item() == pytest.approx(expected, rel=1e-4)


def test_of_choices_it_is_that_of_their_probabilities():
    agent, seen = agent_of("ppo", "env.kwargs.discrete=true"), some_observations()
    with torch.no_grad():
        agent.policy.action_net.weight *= 500.0
        chances = [
            agent.policy.get_distribution(torch.tensor(s)).distribution.probs.numpy()
            for s in (seen, seen * MIRRORED)
        ]
    expected = ((chances[0] - chances[1][:, ::-1]) ** 2).sum(axis=1).mean()
    assert expected > 1e-3
    assert hook_of(agent).asymmetry(torch.tensor(seen)).item() == pytest.approx(expected, rel=1e-4)


def test_its_gradient_times_its_weight_is_added():
    agent, seen = agent_of("ppo", "algo.symmetry_weight=2.5"), torch.tensor(some_observations())
    loss, parameters = hook_of(agent), [*agent.policy.parameters()]
    expected = torch.autograd.grad(loss.asymmetry(seen), parameters, allow_unused=True)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    agent.set_logger(configure(None, []))
    loss.observations = seen
    loss.add_gradient(agent.policy.optimizer)
    assert any(gradient is not None and gradient.abs().max() > 0 for gradient in expected)
    for parameter, gradient in zip(parameters, expected, strict=True):
        added = torch.zeros(1) if gradient is None else 2.5 * gradient
        assert torch.allclose(parameter.grad, torch.ones_like(parameter) + added)


@pytest.mark.parametrize("algo", ["ppo", "a2c"])
@pytest.mark.training
def test_a_policy_learns_to_act_alike_on_both_sides(algo):
    gaps = {}
    for symmetry in ("null", "loss"):
        agent, seen = agent_of(algo, f"algo.symmetry={symmetry}"), some_observations()
        before = distance(agent, seen)
        agent.learn(1024)
        gaps[symmetry] = distance(agent, seen) / before
    assert gaps["loss"] < 0.5
    assert gaps["loss"] < 0.5 * gaps["null"]


@pytest.mark.training
def test_each_minibatch_counts_and_the_value_is_logged():
    agent = agent_of("ppo", "algo.hyperparams.n_epochs=3")
    sizes, plain = [], hook_of(agent).asymmetry
    hook_of(agent).asymmetry = lambda seen: (sizes.append(len(seen)), plain(seen))[1]
    agent._write_log = lambda *_: None
    agent.learn(64)
    assert sizes == [32] * 6
    assert agent.logger.name_to_value["train/symmetry_loss"] > 0


@pytest.mark.training
@pytest.mark.parametrize("algo", ["ppo", "a2c"])
def test_a_run_resumes_bit_for_bit(algo, capsys):
    task = [f"algo={algo}", *SHORT, *OF_ALGO[algo], LOSS, "normalize=true"]
    task = [*{word.partition("=")[0]: word for word in task}.values()]
    assert dispatch.run("verify-resume", [*task, "--kills", "1"]) == 0
    assert "identical" in capsys.readouterr().out


@pytest.mark.training
def test_a_frozen_actor_keeps_its_weights():
    parts = "freeze=[mlp_extractor.policy_net, action_net, log_std]"
    agent = agent_of("ppo", parts)
    before = agent.policy.action_net.weight.detach().clone()
    agent.learn(64)
    assert torch.equal(agent.policy.action_net.weight, before)


def test_without_it_a_hash_is_what_it_was():
    plain = config_of("ppo", "algo.symmetry=null")
    assert "symmetry_weight" not in plain.model_dump()["algo"]
    assert config_hash(config_of("ppo")) != config_hash(config_of("ppo", "algo.symmetry_weight=1"))


@pytest.mark.parametrize(
    ("algo", "overrides", "text"),
    [
        ("recurrent_ppo", (LOSS,), "without mirror images"),
        (
            "ppo",
            (LOSS, "distributed=2", "n_envs=2"),
            r"symmetry=loss with distributed=2: it is learned by one process",
        ),
        ("ppo", (LOSS, "algo.symmetry_weight=0"), r"algo\.symmetry_weight=0"),
        ("ppo", ("algo.symmetry_weight=2",), "algo.symmetry_weight is that of algo.symmetry=loss"),
        (
            "ppo",
            ("algo.symmetry=augment", "algo.symmetry_weight=2"),
            "algo.symmetry_weight is that of",
        ),
        ("ppo", ("algo.symmetry=both",), "algo.symmetry"),
    ],
)
def test_what_does_not_fit_is_refused(algo, overrides, text):
    with pytest.raises(ConfigError, match=text):
        tiny_config(algo, "tests/TinyReach-v0", *overrides)


@pytest.mark.parametrize("algo", ["trpo", "sac"])
def test_an_algorithm_without_minibatches_is_refused_before_training(algo, tmp_path, capsys):
    task = [f"algo={algo}", *SHORT, LOSS, f"run_dir={tmp_path / 'run'}"]
    assert dispatch.run("train", task) == 2
    assert "algo.symmetry=loss is for ppo and a2c" in capsys.readouterr().err
