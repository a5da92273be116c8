"""SAC in one file: soft actor-critic with a learned temperature (arXiv:1812.05905).

    python sac.py --env Pendulum-v1 --seed 1

Read from top to bottom: settings, networks, replay buffer, update, loop. Observations are vectors,
actions continuous with bounds. Every number equals that of Stable-Baselines3.
"""

import argparse
from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium.spaces import flatdim
from torch import Tensor, nn
from torch.distributions import Distribution, Normal
from torch.nn.functional import mse_loss
from torch.optim import Adam


@dataclass
class Settings:
    """The options of the command line."""

    env: str = "Pendulum-v1"
    seed: int = 0
    total_steps: int = 10_000
    buffer_size: int = 100_000
    learning_starts: int = 1_000  # Steps with random actions before the first update.
    batch_size: int = 256
    learning_rate: float = 1e-3
    gamma: float = 0.99
    tau: float = 0.005  # The share of the critics that their targets take over an update.
    hidden: int = 256


def network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a network with two hidden layers."""
    layers = (nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(hidden, outputs))


class Actor(nn.Module):
    """A Gaussian whose samples a tanh brings into [-1, 1]."""

    def __init__(self, env: gym.Env[Any, Any], hidden: int) -> None:
        super().__init__()
        size, self.actions = flatdim(env.observation_space), flatdim(env.action_space)
        self.body = network(size, hidden, hidden)[:4]
        self.mean = nn.Linear(hidden, self.actions)
        self.log_std = nn.Linear(hidden, self.actions)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Return sampled actions, and the logarithms of their densities, shape (batch, 1)."""
        features = self.body(observations)
        deviation = self.log_std(features).clamp(-20, 2).exp()
        gaussian: Distribution = Normal(self.mean(features), deviation)
        # rsample: gradients flow through the sample to mean and standard deviation.
        before = gaussian.rsample()
        actions = torch.tanh(before)
        log_probs = gaussian.log_prob(before).sum(dim=1, keepdim=True)
        # The tanh packs the samples closer together near the bounds.
        return actions, log_probs - torch.log(1 - actions**2 + 1e-6).sum(dim=1, keepdim=True)

    @torch.no_grad()
    def act(self, observation: np.ndarray, sample: bool = True) -> np.ndarray:
        """Return one action in [-1, 1]: a sample, or else the middle."""
        rows = torch.as_tensor(observation)[None]
        actions = self(rows)[0] if sample else torch.tanh(self.mean(self.body(rows)))
        return np.asarray(actions[0])


class Critics(nn.Module):
    """Two estimates of the return of an action; the smaller one is trusted."""

    def __init__(self, env: gym.Env[Any, Any], hidden: int) -> None:
        super().__init__()
        size = flatdim(env.observation_space) + flatdim(env.action_space)
        self.first, self.second = network(size, hidden, 1), network(size, hidden, 1)

    def forward(self, observations: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
        """Return both estimates, each of shape (batch, 1)."""
        both = torch.cat([observations, actions], dim=1)
        return self.first(both), self.second(both)


class Batch(NamedTuple):
    """Transitions, one a row; actions in [-1, 1]."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    # Whether nothing follows; false where only the time limit ended the episode.
    terminated: Tensor


class ReplayBuffer:
    """The newest transitions, overwritten in a circle."""

    def __init__(self, capacity: int, env: gym.Env[Any, Any]) -> None:
        size, actions = flatdim(env.observation_space), flatdim(env.action_space)
        self.capacity, self.added = capacity, 0
        widths = Batch(size, actions, 1, size, 1)  # type: ignore[arg-type]
        self.arrays = [np.zeros((capacity, width), np.float32) for width in widths]

    def add(self, *transition: Any) -> None:
        """Store one transition, its parts in the order of `Batch`."""
        for array, value in zip(self.arrays, transition, strict=True):
            array[self.added % self.capacity] = value
        self.added += 1

    def sample(self, count: int) -> Batch:
        """Return transitions drawn with replacement."""
        rows = np.random.randint(0, min(self.added, self.capacity), size=count)
        return Batch(*(torch.as_tensor(array[rows]) for array in self.arrays))


class Update(NamedTuple):
    """What one step with an update brought."""

    step: int
    losses: dict[str, float]
    returned: float | None  # The return of an episode that ended with this step.


class Learner:
    """Networks with their optimizers, and the update."""

    def __init__(self, env: gym.Env[Any, Any], settings: Settings) -> None:
        self.settings = settings
        self.actor = Actor(env, settings.hidden)
        self.critics = Critics(env, settings.hidden)
        self.target = deepcopy(self.critics)
        # The price of being predictable; its logarithm is learned, so it stays positive.
        self.log_temperature = torch.zeros(1, requires_grad=True)
        # Actions shall be as random as this on average, in nats.
        self.wanted_entropy = -float(self.actor.actions)
        self.actor_optimizer = Adam(self.actor.parameters(), settings.learning_rate)
        self.critic_optimizer = Adam(self.critics.parameters(), settings.learning_rate)
        self.temperature_optimizer = Adam([self.log_temperature], settings.learning_rate)

    def learn(self, batch: Batch) -> dict[str, float]:
        """Take one gradient step with each optimizer; return the losses."""
        actions, log_probs = self.actor(batch.observations)
        temperature = self.log_temperature.detach().exp()
        missing = log_probs.detach() + self.wanted_entropy
        temperature_loss = -(self.log_temperature * missing).mean()
        descend(self.temperature_optimizer, temperature_loss)
        with torch.no_grad():
            next_actions, next_log_probs = self.actor(batch.next_observations)
            best = torch.min(*self.target(batch.next_observations, next_actions))
            best -= temperature * next_log_probs
            wanted = batch.rewards + (1 - batch.terminated) * self.settings.gamma * best
        first, second = self.critics(batch.observations, batch.actions)
        critic_loss = 0.5 * (mse_loss(first, wanted) + mse_loss(second, wanted))
        descend(self.critic_optimizer, critic_loss)

        worth = torch.min(*self.critics(batch.observations, actions))
        actor_loss = (temperature * log_probs - worth).mean()
        descend(self.actor_optimizer, actor_loss)
        follow(self.target, self.critics, self.settings.tau)
        losses = {"actor": actor_loss, "critic": critic_loss, "temperature": temperature_loss}
        return {name: loss.item() for name, loss in losses.items()}


def descend(optimizer: Adam, loss: Tensor) -> None:
    """Take one step down the gradient of a loss."""
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    optimizer.step()


@torch.no_grad()
def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Move the weights of a target network a little towards those of its source."""
    for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
        slow.mul_(1 - tau).add_(fast, alpha=tau)


def to_unit(action: np.ndarray, space: Any) -> np.ndarray:
    """Return an action of the environment in [-1, 1]."""
    return np.asarray(2.0 * ((action - space.low) / (space.high - space.low)) - 1.0)


def from_unit(action: np.ndarray, space: Any) -> np.ndarray:
    """Return an action in [-1, 1] in the units of the environment."""
    return np.asarray(space.low + 0.5 * (action + 1.0) * (space.high - space.low))


def train(settings: Settings, env: gym.Env[Any, Any], learner: Learner) -> Iterator[Update]:
    """Train the learner, one update a step; yield after each."""
    space: Any = env.action_space
    space.seed(settings.seed)
    buffer = ReplayBuffer(settings.buffer_size, env)
    observation, total = env.reset(seed=settings.seed)[0], 0.0
    for step in range(1, settings.total_steps + 1):
        if step <= settings.learning_starts:
            action = space.sample()
        else:
            action = from_unit(learner.actor.act(observation), space)
        unit = to_unit(action, space)
        following, reward, terminated, truncated, _ = env.step(from_unit(unit, space))
        buffer.add(observation, unit, float(reward), following, terminated)
        observation, total, returned = following, total + float(reward), None
        if terminated or truncated:
            observation, total, returned = env.reset()[0], 0.0, total
        if step > settings.learning_starts:
            yield Update(step, learner.learn(buffer.sample(settings.batch_size)), returned)


def evaluate(actor: Actor, name: str, episodes: int = 20) -> float:
    """Return the mean return of episodes without noise."""
    env, total = gym.make(name), 0.0
    for episode in range(episodes):
        observation, over = env.reset(seed=10_000 + episode)[0], False
        while not over:
            action = from_unit(actor.act(observation, sample=False), env.action_space)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def main() -> None:
    """Train by the options of the command line, then evaluate."""
    parser = argparse.ArgumentParser(description="SAC")
    for each in fields(Settings):
        option, default = "--" + each.name.replace("_", "-"), each.default
        parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    settings = Settings(**vars(parser.parse_args()))
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    env = gym.make(settings.env)
    learner = Learner(env, settings)
    recent: deque[float] = deque(maxlen=10)
    for update in train(settings, env, learner):
        if update.returned is not None:
            recent.append(update.returned)
            print(f"{update.step} steps, mean return {np.mean(recent):.1f}", update.losses)
    print(f"evaluation: {evaluate(learner.actor, settings.env):.1f}")


if __name__ == "__main__":
    main()
