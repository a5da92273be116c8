"""An agent is looked at each time where code of the user's has it, and seldom elsewhere."""

import functools

import pytest
import torch
from stable_baselines3 import PPO, TD3
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    EveryNTimesteps,
)
from support.training import assert_same_tree, tiny_config

from rlzoo_plus.agents.factory import make_agent
from rlzoo_plus.agents.hooks import with_iteration_hook
from rlzoo_plus.envs.factory import make_train_env
from rlzoo_plus.fast.door import Accelerated, record
from rlzoo_plus.fast.recorded.change_detector import ChangeDetector

pytestmark = pytest.mark.training


class Mine(BaseCallback):
    """A user's."""

    def _on_step(self):
        return True


class MyPPO(PPO):
    """A user's."""


class Asks(CheckpointCallback):
    """Notes whether only known code has the agent."""

    __module__ = "stable_baselines3.common.callbacks"

    def __init__(self, seen):
        super().__init__(10**9, "unused")
        self.seen = seen

    def _on_rollout_start(self):
        self.seen.append(self.model.trusted_code_token is not None)


def small_ppo(kind=PPO):
    kind = with_iteration_hook(kind, Accelerated)
    agent = kind("MlpPolicy", "CartPole-v1", n_steps=32, batch_size=32, n_epochs=2, seed=0)
    record(agent)
    return agent


@pytest.mark.parametrize(
    ("others", "kind", "expected"),
    [
        ([], PPO, True),
        ([CheckpointCallback(10**9, "unused")], PPO, True),
        ([Mine()], PPO, False),
        ([CallbackList([EveryNTimesteps(10, Mine())])], PPO, False),
        ([], MyPPO, False),
    ],
)
def test_who_has_the_agent_decides(others, kind, expected):
    seen = []
    agent = small_ppo(kind)
    agent.learn(96, CallbackList([Asks(seen), *others]))
    assert seen == [expected] * 3
    assert agent.trusted_code_token is None


def test_a_function_is_code_of_the_user():
    agent, seen = small_ppo(), []

    def note(local, _):
        seen.append(local["self"].trusted_code_token is not None)
        return True

    agent.learn(32, note)
    assert seen == [False] * 32
    agent.learn(32, callback=[CheckpointCallback(10**9, "unused")])
    assert agent.trusted_code_token is None


def test_it_is_looked_at_first_and_then_seldom():
    looks, training = ChangeDetector(small_ppo()), object()
    found = [looks.is_due(training) for _ in range(200)]
    assert found[0]
    assert 2 <= sum(found) <= 5
    assert looks.is_due(object())
    assert all(looks.is_due(None) for _ in range(3))


def test_a_run_is_undisturbed(tmp_path):
    config = tiny_config("ppo", "tests/TinyReach-v0", "n_timesteps=32")
    venv = make_train_env(config, 1)
    agent = make_agent(config, venv, 1)
    seen = []
    agent.learn(32, Asks(seen))
    assert all(seen)


def changed(agent, changes):
    """Train in several pieces, and change the networks between them."""
    for change in (*changes, None):
        agent.learn(160, reset_num_timesteps=False)
        is_ppo = isinstance(agent, PPO)
        network = agent.policy.mlp_extractor.policy_net if is_ppo else agent.actor.mu
        if change == "frozen":
            network[0].weight.requires_grad_(False)
        if change == "moved":
            network[0].weight.data = network[0].weight.data * 1.5
        if change == "replaced":
            network[2].bias = torch.nn.Parameter(torch.full_like(network[2].bias, 0.1))
    return {name: value.numpy() for name, value in agent.policy.state_dict().items()}


@pytest.mark.parametrize(
    ("changes", "is_recorded"), [(["frozen", "moved"], True), (["moved", "replaced"], False)]
)
@pytest.mark.parametrize("kind", [PPO, TD3])
def test_what_changes_between_two_trainings_has_its_effect(kind, changes, is_recorded):
    arguments = {"n_steps": 32, "batch_size": 32, "n_epochs": 2}
    env = "Pendulum-v1"
    if kind is TD3:
        policy = {"net_arch": [24, 24]}
        arguments = {"learning_starts": 40, "batch_size": 32, "policy_kwargs": policy}
    torch.set_num_threads(1)
    plain = changed(kind("MlpPolicy", env, seed=0, **arguments), changes)
    agent = with_iteration_hook(kind, Accelerated)("MlpPolicy", env, seed=0, **arguments)
    record(agent)
    assert_same_tree(changed(agent, changes), plain)
    # The optimizer keeps a parameter that was replaced in the network.
    assert (not agent.recorded.reason) is is_recorded
    assert agent.recorded.n_recorded > 2


def test_another_train_of_stable_baselines3_is_not_recorded(monkeypatch):
    known = PPO.train

    @functools.wraps(known)
    def another(self):
        self.ent_coef += 0.1
        known(self)

    monkeypatch.setattr(PPO, "train", another)
    agent = small_ppo()
    agent.learn(64)
    assert agent.recorded.n_recorded == 0
    assert "train is a function of yours" in agent.recorded.reason


def test_an_agent_that_is_changed_again_and_again_is_left_alone():
    def replace(local, _):
        policy = local["self"].policy
        policy.action_net.weight = torch.nn.Parameter(policy.action_net.weight.detach())
        return True

    agent = small_ppo()
    agent.learn(256, replace)
    assert "again and again" in agent.rollouts.reason
