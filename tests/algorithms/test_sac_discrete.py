"""SAC for discrete actions: its update against sums by hand, its entropy, what it learns."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

from rlzoo_plus.algorithms.sac_discrete import SACDiscrete


class Corner(gym.Env):
    """Two actions, of which one earns 1 and depends on what is seen; ten steps."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n_steps = 0
        return self._see(), {}

    def step(self, action):
        earned = float(int(action) == int(self.seen[0] > 0))
        self.n_steps += 1
        return self._see(), earned, False, self.n_steps == 10, {}

    def _see(self):
        self.seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return self.seen


def agent_of(**kwargs):
    agent = SACDiscrete(
        "MlpPolicy",
        Corner(),
        policy_kwargs={"net_arch": [16]},
        buffer_size=1000,
        seed=0,
        device="cpu",
        **kwargs,
    )
    agent.set_logger(configure(None, []))
    return agent


def batch_of(n):
    random = torch.Generator().manual_seed(3)
    seen, following = torch.randn(2, n, 2, generator=random)
    return ReplayBufferSamples(
        observations=seen,
        actions=torch.arange(n).reshape(-1, 1) % 2,
        next_observations=following,
        dones=(torch.arange(n).reshape(-1, 1) % 4 == 0).float(),
        rewards=torch.linspace(-1, 1, n).reshape(-1, 1),
    )


def test_the_losses_are_the_sums_over_actions_of_the_paper():
    agent, batch = agent_of(ent_coef=0.3, gamma=0.9), batch_of(8)
    critic_loss, actor_loss = 0.0, 0.0
    with torch.no_grad():
        for row in range(8):
            following = agent.actor(batch.next_observations[row : row + 1]).softmax(dim=1)[0]
            values = agent.q_net.all_values(batch.observations[row : row + 1])[:, 0]
            slow = agent.q_net_target.all_values(batch.next_observations[row : row + 1])[:, 0]
            expected = sum(
                following[a] * (min(slow[0, a], slow[1, a]) - 0.3 * following[a].log())
                for a in range(2)
            )
            target = batch.rewards[row] + 0.9 * (1 - batch.dones[row]) * expected
            action = int(batch.actions[row])
            critic_loss += sum(0.5 * (values[k, action] - target) ** 2 for k in range(2)) / 8
    before = {name: value.clone() for name, value in agent.q_net.state_dict().items()}
    logged = agent.update(batch)
    assert logged["critic_loss"] == pytest.approx(critic_loss.item(), rel=1e-5)
    assert any((before[name] != value).any() for name, value in agent.q_net.state_dict().items())
    # The actor is updated with the critics that have just been updated.
    fresh = agent_of(ent_coef=0.3, gamma=0.9)
    with torch.no_grad():
        lowest = agent.q_net.all_values(batch.observations).min(dim=0).values
        for row in range(8):
            p = fresh.actor(batch.observations[row : row + 1]).softmax(dim=1)[0]
            actor_loss += sum(p[a] * (0.3 * p[a].log() - lowest[row, a]) for a in range(2)) / 8
    assert logged["actor_loss"] == pytest.approx(actor_loss.item(), rel=1e-5)


def test_the_weight_of_the_entropy_moves_towards_its_target():
    agent, batch = agent_of(learning_rate=1e-2), batch_of(8)
    assert agent.target_entropy == pytest.approx(0.5 * np.log(2))
    first = agent.update(batch)
    # A new policy is nearly uniform: more entropy than the target, so its weight falls.
    assert first["entropy"] > agent.target_entropy
    assert agent.update(batch)["ent_coef"] < first["ent_coef"] == 1.0
    assert agent_of(ent_coef="auto_0.1").update(batch)["ent_coef"] == pytest.approx(0.1)


def test_the_slow_critics_follow_and_are_not_trained():
    agent = agent_of(tau=0.5, learning_rate=1e-2)
    agent.learn(150)
    slow, fast = agent.q_net_target.state_dict(), agent.q_net.state_dict()
    assert all((slow[name] != fast[name]).any() for name in slow)
    trained = {id(p) for group in agent.q_net.optimizer.param_groups for p in group["params"]}
    assert trained.isdisjoint(id(p) for p in agent.q_net_target.parameters())


@pytest.mark.training
def test_it_learns_what_pays():
    agent = agent_of(learning_rate=3e-3, batch_size=64, gamma=0.5, target_entropy=0.1)
    agent.learn(1200)
    seen = np.random.default_rng(1).uniform(-1, 1, (200, 2)).astype(np.float32)
    actions, _ = agent.predict(seen, deterministic=True)
    assert np.mean(actions == (seen[:, 0] > 0)) > 0.95
