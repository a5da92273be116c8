"""Seeds: the run's seed becomes disjoint streams for training and evaluation."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlzoo_plus.config.signatures import PLAIN_SEED

if TYPE_CHECKING:
    from rlzoo_plus.config.schema import RunConfig

# Three ranges that cannot meet: no evaluation episode is ever seen in training.
_TRAIN, _EVAL, _TEST = (0, 2**29), (2**29, 2**30), (2**30, 2**31 - 1)


@dataclass(frozen=True)
class SeedStreams:
    """The seeds derived from a run's seed."""

    agent: int  # Seeds Python, NumPy, torch and the action space
    train: int  # Seed of the first training environment; the next ones count up

    @classmethod
    def from_seed(cls, seed: int) -> SeedStreams:
        """Derive the streams; the same seed gives the same streams on every machine."""
        agent, train = np.random.SeedSequence(seed).generate_state(2, np.uint64)
        return cls(agent=int(agent % 2**31), train=int(train % (_TRAIN[1] - 100_000)))

    @classmethod
    def of(cls, config: RunConfig) -> SeedStreams:
        """Return the streams of a run.

        With `algo.hyperparams.seed=plain` agent and environments have the run's seed itself, as in
        Stable-Baselines3; it stays within the range of training.
        """
        if config.algo.hyperparams.get("seed") != PLAIN_SEED:
            return cls.from_seed(config.seed)
        seed = config.seed % (_TRAIN[1] - 100_000)
        return cls(agent=seed, train=seed)

    def train_after(self, n_steps: int) -> int:
        """Return the seed of an episode that begins after so many steps, of which none is known."""
        low, high = _TRAIN
        return low + (self.train + n_steps) % (high - low)

    def report(self) -> dict[str, Any]:
        """Return the streams as plain data."""
        ranges = {"train_range": _TRAIN, "evaluation_range": _EVAL, "test_range": _TEST}
        return {**asdict(self), **ranges}


def evaluation_seeds(count: int) -> list[int]:
    """Return the seeds of the episodes of each evaluation while training.

    They are the same for every run, so that algorithms are compared on the same episodes.
    """
    return _draw(count, _EVAL, stream=1)


def held_out_seeds(count: int, seed: int = 0) -> list[int]:
    """Return seeds of episodes that neither training nor the choice of the best has used."""
    return _draw(count, _TEST, stream=2 + seed)


def _draw(count: int, bounds: tuple[int, int], stream: int) -> list[int]:
    generator = np.random.default_rng([stream])
    return [int(s) for s in generator.integers(bounds[0], bounds[1], size=count)]


def seed_all(seed: int, envs: Any = None) -> dict[str, Any]:
    """Seed Python, NumPy, torch and environments from the streams of one seed.

    Args:
        seed: As `seed=` of a run, which sets the same when it begins.
        envs: A Gymnasium environment, a vectorised one of Stable-Baselines3 or Gymnasium, or a list
            of them; they are seeded for their next reset, counting up.

    Returns:
        What was set: `python`, `numpy`, `torch`, and the seeds of `environments` in their order.
    """
    _torch()  # Seeded because it is imported.
    streams = SeedStreams.from_seed(seed)
    seed_generators(streams.agent)
    report: dict[str, Any] = dict.fromkeys(("python", "numpy", "torch"), streams.agent)
    if envs is None:
        return report
    report["environments"], following = [], streams.train
    for env in envs if isinstance(envs, list | tuple) else [envs]:
        # Only vectorised environments of Stable-Baselines3 have `env_is_wrapped`.
        if hasattr(env, "env_is_wrapped"):
            env.seed(following)
        else:
            env.reset(seed=following)
        env.action_space.seed(following)
        seeds = [following + rank for rank in range(getattr(env, "num_envs", 1))]
        report["environments"] += seeds
        following += len(seeds)
    return report


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python and NumPy, and of torch where it is imported."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


@contextlib.contextmanager
def generators_kept() -> Iterator[None]:
    """Restore the global generators afterwards, torch's where it is imported."""
    torch = sys.modules.get("torch")
    state = random.getstate(), np.random.get_state()
    with contextlib.nullcontext() if torch is None else torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(state[0])
            np.random.set_state(state[1])


def generator_states() -> tuple[Any, ...]:
    """Return the states of the global generators: Python's, NumPy's and torch's of the CPU."""
    return random.getstate(), np.random.get_state(), _torch().get_rng_state().numpy().copy()


def set_generator_states(states: tuple[Any, ...]) -> None:
    """Set the global generators to states from `generator_states`."""
    torch = _torch()
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(torch.from_numpy(states[2]))


def _torch() -> Any:
    """Return torch, which a command's help does without."""
    import torch

    return torch
