"""Batches, and the suite of parts over agents of Stable-Baselines3."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from support.tiny_envs import TinyDict, TinyReach

from rlzoo_plus.contracts.protocols import Batch, Trainer
from rlzoo_plus.contracts.sb3_parts import SB3Buffer, SB3Collector, SB3Module, SB3Trainer
from rlzoo_plus.demonstrations.cloning import BehaviorCloning
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.testing import PartsContract
from rlzoo_plus.testing.parts_contract import Parts

OFF = {"learning_starts": 0, "train_freq": (8, "step"), "buffer_size": 400}
N_ENVS = 2


def agent_of(kind, env=TinyReach, **options):
    discrete = {"discrete": True} if kind is DQN else {}
    venv = DummyVecEnv([lambda: env(**discrete) for _ in range(N_ENVS)])
    policy = "MultiInputPolicy" if env is TinyDict else "MlpPolicy"
    size = {"policy_kwargs": {"net_arch": [8]}, "device": "cpu", "seed": 1}
    return kind(policy, venv, **size, **options)


def parts_of(agent):
    spaces = agent.observation_space, agent.action_space
    is_dict = isinstance(agent.observation_space, gym.spaces.Dict)
    kind = DictReplayBuffer if is_dict else ReplayBuffer
    buffer = SB3Buffer(kind(400, *spaces, device="cpu", n_envs=N_ENVS))
    module, collector, trainer = SB3Module(agent), SB3Collector(agent), SB3Trainer(agent)
    on_policy = isinstance(agent, PPO | A2C)
    return Parts(module, collector, buffer, trainer, N_ENVS, on_policy)


class TestPPO(PartsContract):
    @pytest.fixture
    def parts(self):
        return parts_of(agent_of(PPO, n_steps=16, batch_size=8, n_epochs=2))


class TestSAC(PartsContract):
    @pytest.fixture
    def parts(self):
        return parts_of(agent_of(SAC, **OFF))


class TestDQN(PartsContract):
    @pytest.fixture
    def parts(self):
        return parts_of(agent_of(DQN, **OFF))


def batch_of(count, first=0, *, infos=True):
    numbers = np.arange(first, first + count, dtype=np.float32)
    seen = {"a": numbers[:, None], "b": numbers}
    told = [{"n": int(n)} for n in numbers] if infos else ()
    return Batch(seen, numbers[:, None], numbers, numbers > 2, seen, told)


def test_batches_are_merged_and_selected_by_row():
    whole = Batch.merge([batch_of(3), batch_of(2, 3)])
    assert len(whole) == 5
    np.testing.assert_array_equal(whole.observations["b"], np.arange(5))
    for rows in (np.array([4, 1]), torch.tensor([4, 1]), [4, 1]):
        chosen = whole.select(rows)
        np.testing.assert_array_equal(chosen.actions, [[4.0], [1.0]])
        np.testing.assert_array_equal(chosen.observations["a"], [[4.0], [1.0]])
        assert [info["n"] for info in chosen.infos] == [4, 1]
    assert [info["n"] for info in whole.select(whole.rewards > 2).infos] == [3, 4]
    assert len(whole.select(slice(1, 3))) == 2
    moved = whole.to("cpu")
    assert all(isinstance(part, torch.Tensor) for part in (moved.rewards, moved.dones))
    assert isinstance(moved.observations["a"], torch.Tensor)
    assert len(Batch.merge([moved, moved])) == 10
    bare = Batch(np.zeros((2, 1)), np.zeros((2, 1)))
    assert Batch.merge([bare, bare]).rewards is None
    assert bare.select([0]).to("cpu").dones is None


def test_batches_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="no batch"):
        Batch.merge([])
    with pytest.raises(ValueError, match="infos: some of the batches have none"):
        Batch.merge([batch_of(1), batch_of(1, infos=False)])


@pytest.mark.parametrize("kind", [SAC, DQN])
def test_an_update_of_the_adapter_is_the_agents_own(kind):
    agents = [agent_of(kind, **OFF, batch_size=16) for _ in range(2)]
    parts = parts_of(agents[0])
    for _ in range(2):
        parts.buffer.add(parts.collector.collect())
    agents[1].replay_buffer = parts.buffer._buffer
    np.random.seed(3)
    torch.manual_seed(3)
    SB3Trainer(agents[0]).train_step(parts.buffer.sample(16))
    np.random.seed(3)
    torch.manual_seed(3)
    agents[1].set_logger(agents[0].logger)
    agents[1].train(gradient_steps=1, batch_size=16)
    weights = [agent.policy.state_dict() for agent in agents]
    for name, tensor in weights[0].items():
        assert torch.equal(tensor, weights[1][name]), name


def test_dictionaries_of_observations_are_collected():
    parts = parts_of(agent_of(A2C, TinyDict, n_steps=5))
    batch = parts.collector.collect()
    assert len(batch) == 10
    assert set(batch.observations) == set(batch.next_observations) > set()
    parts.buffer.add(batch)
    assert set(parts.buffer.sample(3).observations) == set(batch.observations)
    assert parts.trainer.train_step(batch)


def test_what_an_adapter_cannot_take_is_refused_by_name():
    agent = agent_of(A2C, n_steps=5)
    parts = parts_of(agent)
    batch = parts.collector.collect()
    with pytest.raises(ValueError, match="the whole of its last rollout"):
        parts.trainer.train_step(batch.select(slice(0, 4)))
    with pytest.raises(ValueError, match="3 transitions are no multiple of n_envs=2"):
        parts.buffer.add(batch.select(slice(0, 3)))
    with pytest.raises(ConfigError, match="object is no on- or off-policy"):
        SB3Module(object())
    agent.set_env(VecNormalize(agent.env))
    with pytest.raises(ConfigError, match="has VecNormalize"):
        SB3Trainer(agent)


def test_behaviour_cloning_is_a_trainer():
    venv = DummyVecEnv([TinyReach])
    agent = BehaviorCloning("MlpPolicy", venv, n_steps=8, batch_size=4, device="cpu", seed=0)
    assert isinstance(agent, Trainer)
    batch = Batch(np.ones((4, 3), np.float32), np.zeros((4, 1), np.float32)).to("cpu")
    before = agent.eval_step(batch)
    assert agent.eval_step(batch) == before
    assert agent.train_step(batch)["loss"] == pytest.approx(before["loss"])
    assert agent.eval_step(batch)["loss"] < before["loss"]
