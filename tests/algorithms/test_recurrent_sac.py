"""Recurrent SAC: its update against one that goes step by step, its memory, what it learns."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import obs_as_tensor
from support.tiny_envs import TinyDict, TinyReach

from rlzoo_plus.algorithms.recurrent_sac import RecurrentSAC

NETWORK = {"net_arch": [16], "lstm_hidden_size": 8}


class Ends(TinyReach):
    """Every other episode ends by its own, not by its time limit."""

    def step(self, action):
        seen, reward, _, done, info = super().step(action)
        is_end = done and self.point > 0
        return seen, reward, is_end, done and not is_end, info


class Recall(gym.Env):
    """Shows 0.8 or -0.8 once; a step earns 0.8 less the distance of the action to that."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.shown, self.n_steps = self.np_random.choice([-0.8, 0.8]), 0
        return np.array([self.shown], np.float32), {}

    def step(self, action):
        self.n_steps += 1
        earned = 0.8 - abs(float(action[0]) - self.shown)
        return np.zeros(1, np.float32), earned, False, self.n_steps == 5, {}


def agent_of(env=TinyReach, policy="MlpLstmPolicy", **kwargs):
    values = {"buffer_size": 1000, "seed": 0, "device": "cpu", "policy_kwargs": NETWORK}
    values |= {"sequence_length": 5, "burn_in": 2, **kwargs}
    agent = RecurrentSAC(policy, env(), **values)
    agent.set_logger(configure(None, []))
    return agent


def step_by_step(network, batch, column, n_steps):
    """Return what a network remembers after each step of a sequence, given one by one."""
    memory, found = None, []
    for time in range(n_steps):
        latent, memory = network.lstm_step(batch.observations[time : time + 1, column], memory)
        found.append(latent[0])
    return torch.stack(found)


def test_the_losses_are_those_of_sac_step_by_step(monkeypatch):
    agent = agent_of(Ends, ent_coef=0.3, gamma=0.9, learning_starts=60)
    agent.learn(60)
    # Without the noise of the policy, all can be computed by hand.
    monkeypatch.setattr(torch.distributions.Normal, "rsample", lambda self: self.mean)
    batch = agent.replay_buffer.sample(6)
    assert not batch.learned.all()
    assert batch.dones.any()
    critic_loss, n_learned = 0.0, int(batch.learned.sum())
    with torch.no_grad():
        for column in range(6):
            n = int(batch.learned[:, column].nonzero().max()) + 1
            own = step_by_step(agent.critic, batch, column, n)
            slow = step_by_step(agent.critic_target, batch, column, n + 1)
            actor = step_by_step(agent.actor, batch, column, n + 1)
            for time in range(n):
                if not batch.learned[time, column]:
                    continue
                action, log_prob = agent.actor.sample(actor[time + 1 : time + 2])
                q = agent.critic_target.values(slow[time + 1 : time + 2], action).min()
                left = 0.9 * (1 - batch.dones[time, column])
                target = batch.rewards[time, column] + left * (q - 0.3 * log_prob[0])
                done = batch.actions[time, column][None]
                values = agent.critic.values(own[time : time + 1], done)[:, 0]
                critic_loss += float(0.5 * ((values - target) ** 2).sum()) / n_learned
    before = {name: value.clone() for name, value in agent.actor.state_dict().items()}
    logged = agent.update(batch)
    assert logged["critic_loss"] == pytest.approx(critic_loss, rel=1e-4)
    # The actor is updated with the critics that have just been updated.
    actor_loss, fresh = 0.0, agent_of()
    fresh.actor.load_state_dict(before)
    with torch.no_grad():
        for column in range(6):
            n = int(batch.learned[:, column].nonzero().max()) + 1
            own, actor = (step_by_step(p, batch, column, n) for p in (agent.critic, fresh.actor))
            action, log_prob = fresh.actor.sample(actor)
            losses = 0.3 * log_prob - agent.critic.values(own, action).min(dim=0).values
            actor_loss += float(losses[batch.learned[:n, column]].sum()) / n_learned
    assert logged["actor_loss"] == pytest.approx(actor_loss, rel=1e-4)
    assert any((before[name] != value).any() for name, value in agent.actor.state_dict().items())
    assert any((part != 0).any() for part in (p.grad for p in agent.actor.lstm.parameters()))


@pytest.mark.parametrize("n_layers", [1, 2])
def test_acting_step_by_step_is_acting_on_the_sequence(n_layers):
    agent = agent_of(policy_kwargs={**NETWORK, "n_lstm_layers": n_layers})
    random = np.random.default_rng(2)
    seen = random.normal(size=(7, 3, *agent.observation_space.shape)).astype(np.float32)
    starts = np.zeros((7, 3), bool)
    starts[0], starts[4, 1] = True, True
    state, chosen = None, []
    for time in range(7):
        action, state = agent.predict(seen[time], state, starts[time], deterministic=True)
        chosen.append(action)
    assert [part.shape for part in state] == [(n_layers, 3, 8)] * 2
    with torch.no_grad():
        latent, _ = agent.actor.unroll(torch.from_numpy(seen))
        whole = agent.policy.unscale_action(agent.actor.distribution(latent)[0].tanh().numpy())
    assert np.allclose(np.stack(chosen)[:4], whole[:4], atol=1e-5)
    assert np.allclose(np.stack(chosen)[4:, [0, 2]], whole[4:, [0, 2]], atol=1e-5)
    # The episode that began in between has forgotten what was before.
    alone, _ = agent.predict(seen[4, 1], deterministic=True)
    assert np.allclose(chosen[4][1], alone, atol=1e-6)
    assert not np.allclose(chosen[4][1], whole[4, 1], atol=1e-4)


@pytest.mark.parametrize("learning_starts", [0, 200])
def test_while_collecting_it_remembers_the_running_episode(learning_starts):
    agent = agent_of(learning_starts=learning_starts, train_freq=87, gradient_steps=0)
    agent.learn(87)
    buffer = agent.replay_buffer
    start = int(np.flatnonzero(buffer.dones[:87, 0]).max()) + 1
    assert 0 < start < 86
    # The last action was chosen by what had been seen before it.
    seen = torch.from_numpy(buffer.observations[start:87])
    with torch.no_grad():
        _, memory = agent.actor.unroll(seen)
    for own, wanted in zip(agent._memory, memory, strict=True):
        assert np.allclose(own[:, 0], wanted[:, 0].numpy(), atol=1e-6)
        assert (own != 0).any()


def test_a_dictionary_is_remembered_too():
    agent = agent_of(lambda: TinyDict(picture=False), "MultiInputLstmPolicy")
    agent.learn(150)
    seen = agent.env.reset()
    first, state = agent.predict(seen, deterministic=True)
    second, _ = agent.predict(seen, state, np.array([False]), deterministic=True)
    assert not np.allclose(first, second, atol=1e-5)
    tensors = obs_as_tensor(seen, agent.device)
    values = agent.critic(tensors, torch.zeros(1, 1))
    assert [value.shape for value in values] == [(1, 1)] * 2


@pytest.mark.training
@pytest.mark.slow
def test_it_learns_what_only_a_memory_can():
    agent = agent_of(Recall, learning_rate=3e-3, learning_starts=200, gamma=0.5)
    agent.learn(1500)
    # Without a memory, 0.8 is the most: only the first step sees what is asked for.
    assert mean_return(agent) > 3.0


def mean_return(agent, n_episodes=20):
    """Return what the policy earns in an episode, on average."""
    total, env = 0.0, Recall()
    for seed in range(n_episodes):
        seen, _ = env.reset(seed=seed)
        state, starts, is_over = None, np.array([True]), False
        while not is_over:
            action, state = agent.predict(seen[None], state, starts, deterministic=True)
            seen, reward, _, is_over, _ = env.step(action[0])
            starts, total = np.array([False]), total + reward
    return total / n_episodes
