"""TD3 in one file: twin delayed deep deterministic policy gradient (arXiv:1802.09477).

    python td3.py --env Pendulum-v1 --seed 1

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
from torch.nn.functional import mse_loss
from torch.optim import Adam


@dataclass
class Settings:
    """The options of the command line."""

    env: str = "Pendulum-v1"
    seed: int = 0
    total_steps: int = 12_000
    buffer_size: int = 100_000
    # Steps with random actions before the first update.
    learning_starts: int = 1_000
    batch_size: int = 256
    learning_rate: float = 1e-3
    gamma: float = 0.98
    # The share of the networks that their targets take over with each update.
    tau: float = 0.005
    # The actor learns with every so many updates of the critics.
    actor_every: int = 2
    # Standard deviations of what is added to actions in [-1, 1]: in the world, and in targets.
    exploration_noise: float = 0.1
    target_noise: float = 0.2
    target_noise_limit: float = 0.5
    hidden: int = 256


def network(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a network with two hidden layers."""
    first, second = nn.Linear(inputs, hidden), nn.Linear(hidden, hidden)
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Linear(hidden, outputs))


class Actor(nn.Module):
    """A network that gives one action in [-1, 1] for an observation."""

    def __init__(self, env: gym.Env[Any, Any], hidden: int) -> None:
        super().__init__()
        size, actions = flatdim(env.observation_space), flatdim(env.action_space)
        self.layers = network(size, hidden, actions)

    def forward(self, observations: Tensor) -> Tensor:
        """Return one action for each observation."""
        return torch.tanh(self.layers(observations))

    @torch.no_grad()
    def act(self, observation: np.ndarray) -> np.ndarray:
        """Return the action for one observation."""
        return np.asarray(self(torch.as_tensor(observation)[None])[0])


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
    # The return of the episode that ended with this step, if one did.
    returned: float | None


class Learner:
    """Networks with their optimizers, and the update."""

    def __init__(self, env: gym.Env[Any, Any], settings: Settings) -> None:
        self.settings = settings
        self.actor = Actor(env, settings.hidden)
        self.critics = Critics(env, settings.hidden)
        self.target_actor, self.target_critics = deepcopy(self.actor), deepcopy(self.critics)
        self.actor_optimizer = Adam(self.actor.parameters(), settings.learning_rate)
        self.critic_optimizer = Adam(self.critics.parameters(), settings.learning_rate)
        self.updates = 0

    def learn(self, batch: Batch) -> dict[str, float]:
        """Take one gradient step, for the actor only now and then; return the losses."""
        settings = self.settings
        with torch.no_grad():
            # Similar actions are worth about the same: noise hides narrow errors of the critics.
            noise = torch.empty_like(batch.actions).normal_(0, settings.target_noise)
            noise.clamp_(-settings.target_noise_limit, settings.target_noise_limit)
            next_actions = (self.target_actor(batch.next_observations) + noise).clamp(-1, 1)
            best = torch.min(*self.target_critics(batch.next_observations, next_actions))
            wanted = batch.rewards + (1 - batch.terminated) * settings.gamma * best
        first, second = self.critics(batch.observations, batch.actions)
        critic_loss = mse_loss(first, wanted) + mse_loss(second, wanted)
        descend(self.critic_optimizer, critic_loss)
        losses = {"critic": critic_loss.item()}

        self.updates += 1
        if self.updates % settings.actor_every == 0:
            actions = self.actor(batch.observations)
            actor_loss = -self.critics(batch.observations, actions)[0].mean()
            descend(self.actor_optimizer, actor_loss)
            follow(self.target_critics, self.critics, settings.tau)
            follow(self.target_actor, self.actor, settings.tau)
            losses["actor"] = actor_loss.item()
        return losses


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
        noise = np.random.normal(0.0, settings.exploration_noise, size=space.shape)
        unit = np.clip(to_unit(action, space) + noise.astype(np.float32), -1, 1)
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
            action = from_unit(actor.act(observation), env.action_space)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
    return total / episodes


def main() -> None:
    """Train by the options of the command line, then evaluate."""
    parser = argparse.ArgumentParser(description="TD3")
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
