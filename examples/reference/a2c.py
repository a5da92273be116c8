"""A2C in one file: advantage actor-critic, PPO's simpler ancestor (arXiv:1602.01783).

    python a2c.py --env CartPole-v1 --seed 1

Read from top to bottom: settings, networks, rollout, advantages, update, loop. Observations are
vectors, actions discrete or continuous. Every number equals that of Stable-Baselines3.
"""

import argparse
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space, flatdim
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal
from torch.nn.functional import mse_loss
from torch.optim import RMSprop


@dataclass
class Settings:
    """The options of the command line."""

    env: str = "CartPole-v1"
    seed: int = 0
    # Steps of all environments together.
    total_steps: int = 500_000
    num_envs: int = 8
    # Steps of one environment between two updates.
    num_steps: int = 5
    learning_rate: float = 7e-4
    gamma: float = 0.99
    # With 1 the advantages are those of the paper: n-step returns minus values.
    gae_lambda: float = 1.0
    entropy_weight: float = 0.0
    value_weight: float = 0.5
    max_grad_norm: float = 0.5


class Agent(nn.Module):
    """A policy and a value function with separate networks."""

    def __init__(self, observation_space: Space[Any], action_space: Space[Any]) -> None:
        super().__init__()
        size, outputs = flatdim(observation_space), flatdim(action_space)
        self.discrete = isinstance(action_space, Discrete)
        if not self.discrete:
            # The standard deviation is learned, but does not depend on the observation.
            self.log_std = nn.Parameter(torch.zeros(outputs))
        self.policy_body = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh())
        self.value_body = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh())
        # Small last weights: the first policy acts almost at random.
        self.policy_head = layer(64, outputs, gain=0.01)
        self.value_head = layer(64, 1, gain=1.0)

    def policy(self, observations: Tensor) -> Distribution:
        """Return the distribution of actions."""
        output = self.policy_head(self.policy_body(observations))
        if self.discrete:
            return Categorical(logits=output)
        return Independent(Normal(output, torch.ones_like(output) * self.log_std.exp()), 1)

    def value(self, observations: Tensor) -> Tensor:
        """Return the expected discounted return from each observation."""
        values: Tensor = self.value_head(self.value_body(observations))
        return values.flatten()


def layer(inputs: int, outputs: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a linear layer with orthogonal weights and no bias at first."""
    linear = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Rollout(NamedTuple):
    """What was seen between two updates, each of shape (num_steps, num_envs, ...)."""

    observations: Tensor
    actions: Tensor
    log_probs: Tensor
    rewards: Tensor
    values: Tensor
    # Whether the episode ended with this step.
    dones: Tensor


class Update(NamedTuple):
    """What one round of collecting and learning brought."""

    step: int
    rollout: Rollout
    advantages: Tensor
    losses: dict[str, float]
    returns: list[float]


class Collector:
    """Steps the environments with the policy of the moment."""

    def __init__(self, envs: SyncVectorEnv, seed: int) -> None:
        self.envs = envs
        self.observations = envs.reset(seed=seed)[0]
        self.running = np.zeros(envs.num_envs)

    @torch.no_grad()
    def collect(self, agent: Agent, settings: Settings) -> tuple[Rollout, list[float]]:
        """Return a rollout, and the returns of the episodes that ended in it."""
        steps, returns = [], []
        for _ in range(settings.num_steps):
            observations = torch.as_tensor(self.observations)
            policy = agent.policy(observations)
            actions = policy.sample()
            sent, space = actions.numpy(), self.envs.single_action_space
            if isinstance(space, Box):
                # A Gaussian has no bounds; the update sees the action before it was clipped.
                sent = np.clip(sent, space.low, space.high)
            self.observations, reward, terminated, truncated, info = self.envs.step(sent)
            rewards = torch.as_tensor(reward, dtype=torch.float32)
            self.running += reward
            for index in np.flatnonzero(terminated | truncated):
                returns.append(float(self.running[index]))
                self.running[index] = 0.0
                if not terminated[index]:
                    # The time limit is no end: what would have followed counts.
                    last = torch.as_tensor(info["final_obs"][index])
                    rewards[index] += settings.gamma * agent.value(last[None])[0]
            dones = torch.as_tensor(terminated | truncated, dtype=torch.float32)
            log_probs, values = policy.log_prob(actions), agent.value(observations)
            steps.append(Rollout(observations, actions, log_probs, rewards, values, dones))
        return Rollout(*(torch.stack(part) for part in zip(*steps, strict=True))), returns


def estimate_advantages(rollout: Rollout, next_values: Tensor, settings: Settings) -> Tensor:
    """Return how much better each action was than expected (GAE, arXiv:1506.02438).

    `next_values` are those of the observations after the last step, shape (num_envs,).
    """
    advantages = torch.zeros_like(rollout.rewards)
    following = torch.zeros_like(next_values)
    for step in reversed(range(len(advantages))):
        goes_on = 1.0 - rollout.dones[step]
        target = rollout.rewards[step] + settings.gamma * next_values * goes_on
        error = target - rollout.values[step]
        following = error + settings.gamma * settings.gae_lambda * goes_on * following
        advantages[step] = following
        next_values = rollout.values[step]
    return advantages


def learn(
    agent: Agent, optimizer: RMSprop, rollout: Rollout, advantages: Tensor, settings: Settings
) -> dict[str, float]:
    """Take one gradient step with a whole rollout; return the losses."""
    # One row a step, the steps of one environment after those of another.
    # Shuffled as in Stable-Baselines3: the means then agree to the last digit.
    order = torch.as_tensor(np.random.permutation(advantages.numel()))
    rows = Rollout(*(part.transpose(0, 1).flatten(0, 1)[order] for part in rollout))
    advantage = advantages.T.flatten()[order]
    policy = agent.policy(rows.observations)
    # Actions that went better than expected become more likely.
    policy_loss = -(advantage * policy.log_prob(rows.actions)).mean()
    value_loss = mse_loss(advantage + rows.values, agent.value(rows.observations))
    entropy_loss = -policy.entropy().mean()
    loss = policy_loss + settings.entropy_weight * entropy_loss
    loss = loss + settings.value_weight * value_loss
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(agent.parameters(), settings.max_grad_norm)
    optimizer.step()
    losses = {"policy": policy_loss, "value": value_loss, "entropy": entropy_loss}
    return {name: loss.item() for name, loss in losses.items()}


def train(settings: Settings, envs: SyncVectorEnv, agent: Agent) -> Iterator[Update]:
    """Train the agent; yield after each update."""
    optimizer = RMSprop(agent.parameters(), settings.learning_rate, alpha=0.99, eps=1e-5)
    collector = Collector(envs, settings.seed)
    step = 0
    while step < settings.total_steps:
        rollout, returns = collector.collect(agent, settings)
        step += rollout.rewards.numel()
        with torch.no_grad():
            next_values = agent.value(torch.as_tensor(collector.observations))
        advantages = estimate_advantages(rollout, next_values, settings)
        losses = learn(agent, optimizer, rollout, advantages, settings)
        yield Update(step, rollout, advantages, losses, returns)


def make_envs(name: str, count: int) -> SyncVectorEnv:
    """Return environments that begin anew in the step in which an episode ends."""
    makers = [lambda: gym.make(name)] * count
    return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)


@torch.no_grad()
def evaluate(agent: Agent, name: str, episodes: int = 20) -> float:
    """Return the mean return of episodes with the most likely action in each step."""
    env, total = gym.make(name), 0.0
    for episode in range(episodes):
        observation, over = env.reset(seed=10_000 + episode)[0], False
        while not over:
            action: Any = agent.policy(torch.as_tensor(observation)[None]).mode[0].numpy()
            if isinstance(env.action_space, Box):
                action = np.clip(action, env.action_space.low, env.action_space.high)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def main() -> None:
    """Train by the options of the command line, then evaluate."""
    parser = argparse.ArgumentParser(description="A2C")
    for each in fields(Settings):
        option, default = "--" + each.name.replace("_", "-"), each.default
        parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    settings = Settings(**vars(parser.parse_args()))
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    envs = make_envs(settings.env, settings.num_envs)
    agent = Agent(envs.single_observation_space, envs.single_action_space)
    recent: deque[float] = deque(maxlen=100)
    for count, update in enumerate(train(settings, envs, agent)):
        recent.extend(update.returns)
        if recent and count % 500 == 499:
            print(f"{update.step} steps, mean return {np.mean(recent):.1f}", update.losses)
    print(f"evaluation: {evaluate(agent, settings.env):.1f}")


if __name__ == "__main__":
    main()
