"""Short probes of an environment: episodes of simple policies, resets compared, paired actions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.schema import RunConfig, is_own_vec_env
from rlzoo_plus.envs.fit import is_image
from rlzoo_plus.envs.seeding import generators_kept, seed_generators
from rlzoo_plus.envs.single import longest_episode, make_env
from rlzoo_plus.envs.spaces import parts_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import where_raised

# All probes together.
MOST_S, MOST_STEPS = 25.0, 8_000
_LONGEST = 1_000
_STARTS, _REPEATS = 6, 12
# Differences that a chaotic simulation may make of the last bits of its state.
_SAME = 1e-3
_PREFIX, HELD = 2, 8
_MOST_ENTRIES = 12
# Of a picture every so many pixels.
_PIXEL = 37
# Actions of this share of the range are small, and of this one moderate.
SMALL, MODERATE = 1.0 / 30.0, 0.3
Choose = Callable[[int], Any]


@dataclass(frozen=True)
class Episode:
    """An episode of one of the simple policies."""

    policy: str  # random, nothing, held, jumpy or small
    observations: np.ndarray  # Those of the start and of every step, shape (steps + 1, entries)
    rewards: np.ndarray  # Shape (steps,)
    terminated: bool  # The task ended it
    truncated: bool  # A limit ended it


@dataclass(frozen=True)
class Pair:
    """What differs between two actions, held from the same state on."""

    kind: str  # entry, size, opposite, or choice of a discrete action
    index: int  # The entry of the action, or the discrete action
    lag: int | None  # Steps until observations differ, 0 for the first; None for never
    change: np.ndarray  # The first difference that is not zero, shape (entries,)


@dataclass
class Evidence:
    """What the probes of an environment saw."""

    actions: spaces.Space[Any]  # Its actions
    names: list[str]  # Names of the entries of an observation
    pictured: np.ndarray  # Whether an entry is a pixel, or another code without a size
    low: np.ndarray  # Declared lower bounds of the entries
    high: np.ndarray  # Declared upper bounds
    limit: int | None  # Steps after which an episode is truncated
    starts: list[np.ndarray] = field(default_factory=list)  # One start for each of some seeds
    not_finite: str = ""  # Where a number was NaN or infinite
    seeded: bool = True  # Whether a seed decides the start, and what the same actions do
    leaks: float = 0.0  # How much an earlier episode changes a later one with the same seed
    episodes: list[Episode] = field(default_factory=list)  # Those of all policies
    pairs: list[Pair] = field(default_factory=list)  # Empty if a seed does not decide
    bare: list[Pair] = field(default_factory=list)  # Those without the wrappers, where comparable
    bare_moved: np.ndarray | None = None  # Which entries change without the wrappers

    def of(self, *policies: str) -> list[Episode]:
        """Return the episodes of some policies."""
        return [episode for episode in self.episodes if episode.policy in policies]

    @property
    def seen(self) -> np.ndarray:
        """All observations, shape (steps, entries)."""
        starts = [start[None] for start in self.starts]
        return np.concatenate([*starts, *(episode.observations for episode in self.episodes)])

    @property
    def rewards(self) -> np.ndarray:
        """All rewards, shape (steps,)."""
        return np.concatenate([np.zeros(0), *(episode.rewards for episode in self.episodes)])


def probe(config: RunConfig) -> Evidence:
    """Probe the environment of a run.

    Raises:
        ConfigError: It cannot be made, or ends with an error; or its class steps many at once.
    """
    if is_own_vec_env(config.vec_env):
        raise ConfigError(
            f"--learn probes one environment, and vec_env={config.vec_env} steps many at once. "
            "Use vec_env=auto to probe env.id by itself."
        )
    import_packages(config)
    limit, deadline = longest_episode(config), time.monotonic() + MOST_S
    with generators_kept(), closing(make_env(config.env)) as env:
        seed_generators(0)
        try:
            evidence = _Prober(env, limit, deadline).probe()
            if config.env.wrappers:
                _look_without_wrappers(config, env, evidence, deadline)
        except ConfigError:
            raise
        # An environment may raise anything.
        except Exception as error:
            raise ConfigError(
                f"env.id={config.env.id} ended with an error in a probe: {where_raised(error)}."
            ) from error
    return evidence


def _look_without_wrappers(
    config: RunConfig, env: gym.Env, evidence: Evidence, deadline: float
) -> None:
    """Add what happens without wrappers, if these leave the shapes of both spaces as they are."""
    spec = config.env.model_copy(update={"wrappers": []})
    with closing(make_env(spec)) as bare:
        ours, theirs = (
            (env.observation_space, env.action_space),
            (
                bare.observation_space,
                bare.action_space,
            ),
        )
        if any(a.shape is None or a.shape != b.shape for a, b in zip(ours, theirs, strict=True)):
            return
        prober = _Prober(bare, None, deadline)
        if evidence.pairs:
            evidence.bare = list(prober.pairs())
        evidence.bare_moved = prober.moved()


def moved_of(observations: np.ndarray) -> np.ndarray:
    """Return which entries ever changed, of observations of shape (steps, entries)."""
    size = np.maximum(np.abs(observations).max(axis=0), 1e-3)
    moved: np.ndarray = np.ptp(observations, axis=0) > 1e-9 * size
    return moved


class _Prober:
    """Steps one environment, and sees each observation as one array."""

    def __init__(self, env: gym.Env, limit: int | None, deadline: float) -> None:
        self._env, self._deadline, self._left = env, deadline, MOST_STEPS
        self._parts, names = parts_of(env.observation_space), []
        pictured, low, high = [], [], []
        for key, part in self._parts.items():
            is_box = isinstance(part, spaces.Box)
            stride = _PIXEL if is_image(part) else 1
            bounds = (part.low, part.high) if isinstance(part, spaces.Box) else (0.0, 0.0)
            size = int(np.prod(part.shape or ())) or 1
            flat = [np.broadcast_to(np.ravel(b), size)[::stride].astype(float) for b in bounds]
            names += [f"{key}[{index * stride}]" for index in range(len(flat[0]))]
            pictured += [stride > 1 or not is_box] * len(flat[0])
            low.append(flat[0])
            high.append(flat[1])
        self._seen = Evidence(
            env.action_space,
            [
                name.removeprefix("[").removesuffix("]") if name[0] == "[" else name
                for name in names
            ],
            np.array(pictured),
            np.concatenate(low),
            np.concatenate(high),
            limit,
        )

    def probe(self) -> Evidence:
        """Run all probes."""
        seen = self._seen
        seen.starts = [self._reset(seed) for seed in range(_STARTS)]
        seen.seeded, before = self._is_seeded()
        self._play("random", self._random(7), 7, 60)
        seen.leaks = _distance(before, self._outcome(0, self._still())) if seen.seeded else 0.0
        # First what a slow environment must not leave out.
        if seen.seeded:
            seen.pairs = list(self.pairs())
        self._play_all()
        return seen

    def moved(self) -> np.ndarray:
        """Return which entries change in two episodes."""
        for number in range(2):
            self._play("random", self._random(number), 100 + number, 200)
        return moved_of(self._seen.seen)

    def pairs(self) -> Iterator[Pair]:
        """Yield the pairs from two states; those that only noise distinguishes have no lag."""
        for seed in (0, 1):
            still = self._still()
            base = self._outcome(seed, still)
            noise = _distance(base, self._outcome(seed, still))
            for kind, index, one, other in self._contrasts(still):
                if time.monotonic() > self._deadline:
                    return
                first = base if one is still else self._outcome(seed, one)
                change = self._outcome(seed, other) - first
                large = np.abs(change).max(axis=1) > max(1e-9, 10.0 * noise)
                lag = int(np.argmax(large)) if large.any() else None
                yield Pair(kind, index, lag, change[lag or 0][:-1])

    def _contrasts(self, still: Any) -> Iterator[tuple[str, int, Any, Any]]:
        """Yield what kind of pair, of which entry, and both actions."""
        space = self._seen.actions
        if isinstance(space, spaces.Discrete):
            for choice in range(1, min(int(space.n), _MOST_ENTRIES)):
                yield "choice", choice, still, space.start + choice
        elif isinstance(space, spaces.Box):
            signs = np.where(np.random.default_rng(3).random(space.shape) < 0.5, -1.0, 1.0)
            full = self._scaled(signs)
            yield "size", -1, self._scaled(MODERATE * signs), full
            yield "opposite", -1, self._scaled(-signs), full
            for entry in range(min(int(np.prod(space.shape)), _MOST_ENTRIES)):
                one = np.zeros(space.shape)
                one.flat[entry] = 1.0
                yield "entry", entry, self._scaled(-one), self._scaled(one)
        else:
            for seed in range(_MOST_ENTRIES):
                yield "choice", seed, still, self._random(seed)(0)

    def _is_seeded(self) -> tuple[bool, np.ndarray]:
        """Return whether one seed gives one start and one outcome, and that outcome.

        Repetition washes out what an episode leaves behind, which is not the seed's fault.
        """
        starts = [self._reset(0) for _ in range(_REPEATS)]
        outcomes = [self._outcome(0, self._still()) for _ in range(_REPEATS)]
        apart = max(_distance(*starts[-2:]), _distance(*outcomes[-2:]))
        return apart < _SAME, outcomes[-1]

    def _play_all(self) -> None:
        box = isinstance(self._seen.actions, spaces.Box)
        for number in range(5):
            self._play("random", self._random(number), 100 + number)
        if box:
            signs = (1.0, -1.0)
            held = [self._scaled(np.full(self._seen.actions.shape, sign)) for sign in signs]
            for number in range(2):
                self._play("nothing", lambda _: self._scaled(0.0, zero=True), 200 + number)
            for number in range(5):
                small = self._random(number, SMALL)
                self._play("small", small, 300 + number, 100)
        else:
            held = [self._random(number)(0) for number in range(2)]
        for number, action in enumerate(held):
            self._play("held", _always(action), 400 + number)
        for number in range(2):
            self._play("jumpy", _kept_for_ten(self._random(50 + number)), 500 + number)

    def _play(self, policy: str, choose: Choose, seed: int, most: int = _LONGEST) -> None:
        """Play an episode and keep it; steps and time are bounded."""
        observations, rewards, ends = [self._reset(seed)], list[float](), (False, False)
        most = min(most, self._left, (self._seen.limit or most) + 1)
        while len(rewards) < most and not any(ends) and time.monotonic() < self._deadline:
            observation, reward, *found, _ = self._env.step(choose(len(rewards)))
            ends = (bool(found[0]), bool(found[1]))
            observations.append(self._flat(observation, f"after {len(rewards) + 1} steps"))
            rewards.append(self._finite(float(reward), "the reward", len(rewards) + 1))
        self._left -= len(rewards)
        self._seen.episodes.append(
            Episode(policy, np.array(observations), np.array(rewards), *ends)
        )

    def _outcome(self, seed: int, action: Any) -> np.ndarray:
        """Return what follows if an action is held after a few random ones.

        Returns:
            Observations, and whether the episode has ended, shape (HELD, entries + 1).
        """
        observation, draw, rows = self._reset(seed), self._random(seed + 11, MODERATE), []
        ended = False
        for step in range(_PREFIX + HELD):
            if not ended:
                found = self._env.step(draw(step) if step < _PREFIX else action)
                observation, ended = self._flat(found[0], "held"), bool(found[2] or found[3])
            if step >= _PREFIX:
                rows.append(np.append(observation, float(ended)))
        return np.array(rows)

    def _reset(self, seed: int) -> np.ndarray:
        return self._flat(self._env.reset(seed=seed)[0], "at the start")

    def _flat(self, observation: Any, when: str) -> np.ndarray:
        values = []
        for key, part in self._parts.items():
            value = np.ravel(np.asarray(observation[key] if key else observation, dtype=float))
            values.append(value[:: _PIXEL if is_image(part) else 1])
        flat = np.concatenate(values)
        if not np.isfinite(flat).all():
            place = int(np.argmin(np.isfinite(flat)))
            self._seen.not_finite = self._seen.not_finite or (
                f"observation {self._seen.names[place]} is {flat[place]} {when}"
            )
            flat = np.nan_to_num(flat, posinf=0.0, neginf=0.0)
        return flat

    def _finite(self, value: float, name: str, step: int) -> float:
        if np.isfinite(value):
            return value
        self._seen.not_finite = self._seen.not_finite or f"{name} is {value} after {step} steps"
        return 0.0

    def _random(self, seed: int, share: float = 1.0) -> Choose:
        """Return a policy of random actions from a share of the range."""
        space, draws = self._seen.actions, np.random.default_rng(seed)
        if isinstance(space, spaces.Box):
            return lambda _: self._scaled(share * draws.uniform(-1.0, 1.0, space.shape))
        own = type(space)(**_arguments(space))
        own.seed(seed)
        return lambda _: own.sample()

    def _still(self) -> Any:
        """Return the action that others are compared with."""
        space = self._seen.actions
        if isinstance(space, spaces.Box):
            return self._scaled(0.0)
        return space.start if isinstance(space, spaces.Discrete) else self._random(99)(0)

    def _scaled(self, share: Any, *, zero: bool = False) -> np.ndarray:
        """Return an action at a share of the range, -1 to 1; or the one nearest to zero."""
        space = self._seen.actions
        assert isinstance(space, spaces.Box)
        low = np.where(np.isfinite(space.low), space.low, -1.0).astype(float)
        high = np.where(np.isfinite(space.high), space.high, 1.0).astype(float)
        action = np.zeros(space.shape) if zero else (low + high) / 2 + share * (high - low) / 2
        return np.clip(action, low, high).astype(space.dtype)


def _always(action: Any) -> Choose:
    """Return a policy that knows one action."""
    return lambda _: action


def _kept_for_ten(choose: Choose) -> Choose:
    """Return a policy that keeps each action for ten steps."""
    kept: dict[int, Any] = {}
    return lambda step: kept[step // 10] if step % 10 else kept.setdefault(step // 10, choose(step))


def _arguments(space: spaces.Space[Any]) -> dict[str, Any]:
    """Return the arguments of a copy of a space, whose draws are its own."""
    if isinstance(space, spaces.Discrete):
        return {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        return {"nvec": space.nvec, "start": space.start}
    assert isinstance(space, spaces.MultiBinary)
    return {"n": space.n}


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, in units of the larger entry or 1."""
    scale = np.maximum(np.maximum(np.abs(one), np.abs(other)), 1.0)
    return float((np.abs(one - other) / scale).max(initial=0.0))
