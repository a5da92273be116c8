"""Random play, and comparisons of environments by it."""

import hashlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from robots.vec_env import RobotVecEnv


def bytes_of(observation: Any) -> bytes:
    """Return the bytes of an observation, an array or a dictionary of arrays."""
    if isinstance(observation, dict):
        return b"".join(key.encode() + bytes_of(observation[key]) for key in sorted(observation))
    return np.ascontiguousarray(observation).tobytes()


def trajectory_digest(env: gymnasium.Env, steps: int = 300) -> str:
    """Return a digest of episodes that depend on nothing but the environment."""
    env.reset(seed=7)
    return digest_of_steps(env, steps)


def digest_of_steps(env: gymnasium.Env, steps: int) -> str:
    """Return a digest of all that random steps and the resets between them returned."""
    env.action_space.seed(3)
    digest = hashlib.sha256()
    for _ in range(steps):
        observation, *rest = env.step(env.action_space.sample())
        digest.update(bytes_of(observation) + repr(rest).encode())
        if rest[1] or rest[2]:
            digest.update(bytes_of(env.reset()[0]))
    return digest.hexdigest()


def first_steps(
    env: gymnasium.Env, actions: Sequence[Any], order: Sequence[int]
) -> dict[int, tuple[bytes, bytes]]:
    """Return the readings after each of the first two steps, by action, tried in an order."""
    readings = {}
    for number in order:
        env.reset(seed=number % 3)
        both = []
        for _ in range(2):
            env.step(actions[number])
            both.append(np.array(env.unwrapped.readings).tobytes())
        readings[number] = (both[0], both[1])
    return readings


def play_randomly(env: gymnasium.Env, steps: int) -> list[tuple[Any, float, dict[str, Any]]]:
    """Return observation, reward and info of random steps, resetting between episodes."""
    env.action_space.seed(0)
    env.reset(seed=0)
    played = []
    for _ in range(steps):
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        played.append((observation, reward, info))
        if terminated or truncated:
            env.reset()
    return played


def check_random_play(env: gymnasium.Env, steps: int) -> None:
    """Check that random steps stay inside the observation space, and finite."""
    for observation, reward, _ in play_randomly(env, steps):
        parts = observation.values() if isinstance(observation, dict) else [observation]
        assert env.observation_space.contains(observation)
        assert all(np.isfinite(part).all() for part in parts)
        assert np.isfinite(reward)


def check_same_numbers(together: RobotVecEnv, singles: Sequence[gymnasium.Env], steps: int) -> None:
    """Check that worlds side by side do the same as single environments, bit for bit."""
    together.reset(seed=5)
    for number, env in enumerate(singles):
        env.reset(seed=5 + number)
        env.action_space.seed(number)
    for _ in range(steps):
        actions = [env.action_space.sample() for env in singles]
        moved = together.step_worlds(np.stack(actions))
        for number, (env, action) in enumerate(zip(singles, actions, strict=True)):
            observation, reward, terminated, truncated, info = env.step(action)
            row: Any = moved.observation
            row = {k: v[number] for k, v in row.items()} if isinstance(row, dict) else row[number]
            assert bytes_of(row) == bytes_of(observation)
            assert moved.reward[number] == reward
            assert (moved.terminated[number], moved.truncated[number]) == (terminated, truncated)
            assert moved.infos[number] == info
            if terminated or truncated:
                first, _ = together.reset_world(number)
                assert bytes_of(first) == bytes_of(env.reset()[0])
