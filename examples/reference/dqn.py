"""DQN in one file: Q-learning with a replay buffer and a target network (Mnih et al., 2015).

    python dqn.py --env CartPole-v1 --seed 1

Read from top to bottom: settings, network, replay buffer, update, loop. Observations are vectors,
actions discrete. Every number equals that of Stable-Baselines3.
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
from gymnasium.spaces import Space, flatdim
from torch import Tensor, nn
from torch.nn.functional import smooth_l1_loss
from torch.optim import Adam


@dataclass
class Settings:
    """The options of the command line."""

    env: str = "CartPole-v1"
    seed: int = 0
    total_steps: int = 50_000
    buffer_size: int = 100_000
    # Steps with random actions before the first update.
    learning_starts: int = 1_000
    batch_size: int = 64
    # Every so many steps of the environment there are so many updates.
    train_every: int = 128
    gradient_steps: int = 64
    # Every so many steps the target network becomes a copy of the network.
    target_every: int = 128
    learning_rate: float = 1e-3
    gamma: float = 0.99
    # The share of random actions falls from the first to the last in this part of training.
    exploration_part: float = 0.16
    first_epsilon: float = 1.0
    last_epsilon: float = 0.04
    hidden: int = 256
    max_grad_norm: float = 10.0


class QNetwork(nn.Module):
    """Estimates the return of each action from an observation."""

    def __init__(self, env: gym.Env[Any, Any], hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(flatdim(env.observation_space), hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, flatdim(env.action_space)),
        )

    def forward(self, observations: Tensor) -> Tensor:
        """Return one estimate an action, shape (batch, actions)."""
        values: Tensor = self.layers(observations)
        return values

    @torch.no_grad()
    def best_action(self, observation: np.ndarray) -> np.int64:
        """Return the action with the highest estimate for one observation."""
        return np.int64(self(torch.as_tensor(observation)[None]).argmax(dim=1).item())


class Batch(NamedTuple):
    """Transitions, one a row."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    # Whether nothing follows; false where only the time limit ended the episode.
    terminated: Tensor


class ReplayBuffer:
    """The newest transitions, overwritten in a circle."""

    def __init__(self, capacity: int, observation_space: Space[Any]) -> None:
        shape = observation_space.shape or ()
        self.capacity, self.added = capacity, 0
        self.arrays = (
            np.zeros((capacity, *shape), observation_space.dtype),
            np.zeros((capacity, 1), np.int64),
            np.zeros((capacity, 1), np.float32),
            np.zeros((capacity, *shape), observation_space.dtype),
            np.zeros((capacity, 1), np.float32),
        )

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
    """What the steps since the last update brought."""

    step: int
    # One for each gradient step.
    losses: list[float]
    returns: list[float]


def learn(
    network: QNetwork, target: QNetwork, optimizer: Adam, batch: Batch, settings: Settings
) -> float:
    """Take one gradient step; return the loss."""
    with torch.no_grad():
        best = target(batch.next_observations).max(dim=1, keepdim=True).values
        wanted = batch.rewards + (1 - batch.terminated) * settings.gamma * best
    # Only the action that was taken is known to be worth so much.
    estimated = network(batch.observations).gather(1, batch.actions)
    # Huber's loss: a single surprise pulls with limited force.
    loss = smooth_l1_loss(estimated, wanted)
    optimizer.zero_grad()
    torch.autograd.backward(loss)
    nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
    optimizer.step()
    return loss.item()


def epsilon(step: int, settings: Settings) -> float:
    """Return the share of random actions after so many steps."""
    done = step / settings.total_steps
    if done > settings.exploration_part:
        return settings.last_epsilon
    change = settings.last_epsilon - settings.first_epsilon
    return settings.first_epsilon + done * change / settings.exploration_part


def train(settings: Settings, env: gym.Env[Any, Any], network: QNetwork) -> Iterator[Update]:
    """Train the network; yield after each round of updates."""
    optimizer = Adam(network.parameters(), settings.learning_rate)
    target = deepcopy(network)
    buffer = ReplayBuffer(settings.buffer_size, env.observation_space)
    observation = env.reset(seed=settings.seed)[0]
    env.action_space.seed(settings.seed)
    returns: list[float] = []
    total = 0.0
    for step in range(1, settings.total_steps + 1):
        # During the first steps there is no draw: all actions are random.
        if step <= settings.learning_starts or np.random.rand() < epsilon(step - 1, settings):
            action = env.action_space.sample()
        else:
            action = network.best_action(observation)
        following, reward, terminated, truncated, _ = env.step(action)
        buffer.add(observation, action, float(reward), following, terminated)
        observation, total = following, total + float(reward)
        if terminated or truncated:
            returns.append(total)
            observation, total = env.reset()[0], 0.0
        if step % settings.target_every == 0:
            target.load_state_dict(network.state_dict())
        if step % settings.train_every == 0 and step > settings.learning_starts:
            batches = (buffer.sample(settings.batch_size) for _ in range(settings.gradient_steps))
            losses = [learn(network, target, optimizer, each, settings) for each in batches]
            yield Update(step, losses, returns)
            returns = []


def evaluate(network: QNetwork, name: str, episodes: int = 20) -> float:
    """Return the mean return of episodes without random actions."""
    env, total = gym.make(name), 0.0
    for episode in range(episodes):
        observation, over = env.reset(seed=10_000 + episode)[0], False
        while not over:
            action = network.best_action(observation)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def main() -> None:
    """Train by the options of the command line, then evaluate."""
    parser = argparse.ArgumentParser(description="DQN")
    for each in fields(Settings):
        option, default = "--" + each.name.replace("_", "-"), each.default
        parser.add_argument(option, type=type(default), default=default, help=f"default {default}")
    settings = Settings(**vars(parser.parse_args()))
    np.random.seed(settings.seed)
    torch.manual_seed(settings.seed)
    env = gym.make(settings.env)
    network = QNetwork(env, settings.hidden)
    recent: deque[float] = deque(maxlen=100)
    for update in train(settings, env, network):
        recent.extend(update.returns)
        if recent:
            loss = np.mean(update.losses)
            print(f"{update.step} steps, mean return {np.mean(recent):.1f}, loss {loss:.4f}")
    print(f"evaluation: {evaluate(network, settings.env):.1f}")


if __name__ == "__main__":
    main()
