"""The training mode that is set without a walk is the one that the policy would set."""

import pytest
from sb3_contrib import TQC, CrossQ
from stable_baselines3 import DQN, SAC, TD3
from torch import nn
from twins import same_as_sb3, train

from rlzoo_plus.fast.recorded.training_mode import TrainingMode

SMALL = {"learning_starts": 40, "batch_size": 16, "policy_kwargs": {"net_arch": [16]}}
KINDS = {SAC: "Pendulum-v1", TD3: "Pendulum-v1", TQC: "Pendulum-v1", CrossQ: "Pendulum-v1"}
KINDS[DQN] = "CartPole-v1"


def modes_of(policy):
    return [module.training for module in policy.modules()]


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_that_of_the_policy(kind):
    policy = kind("MlpPolicy", KINDS[kind], policy_kwargs={"net_arch": [16]}).policy
    before = modes_of(policy)
    fast = TrainingMode(policy, policy.set_training_mode)
    assert fast.is_known
    assert modes_of(policy) == before
    for mode in (True, False, True):
        for module in policy.actor.modules() if hasattr(policy, "actor") else ():
            module.training = not mode
        policy.set_training_mode(mode)
        expected = modes_of(policy)
        for module in policy.actor.modules() if hasattr(policy, "actor") else ():
            module.training = not mode
        fast.set(mode)
        assert modes_of(policy) == expected


class Frozen(nn.Linear):
    def train(self, mode=True):
        return super().train(False)


def test_a_module_with_a_mode_of_its_own_sets_it_itself():
    policy = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [16]}).policy
    policy.actor.latent_pi[0] = Frozen(3, 16)
    assert not TrainingMode(policy, policy.set_training_mode).is_known


@pytest.mark.training
@pytest.mark.parametrize("kind", [SAC, CrossQ])
def test_trainings_set_it(kind, monkeypatch):
    given = []
    plain = TrainingMode.set

    def noted(self, mode):
        given.append(mode)
        plain(self, mode)

    monkeypatch.setattr(TrainingMode, "set", noted)
    same_as_sb3((kind, "Pendulum-v1", False, SMALL), 120, n_envs=1)
    # Twice to act, once to update, but for those that are compared or recorded.
    assert given.count(True) > 50
    assert given.count(False) > 2 * 50


def test_code_of_the_user_walks(monkeypatch):
    monkeypatch.setattr(TrainingMode, "set", None)
    case = (SAC, "Pendulum-v1", False, SMALL)
    agent = train(case, 60, recorded=True, callback=lambda *_: True, n_envs=1)
    assert agent.recorded.n_recorded
