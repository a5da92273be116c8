"""Can an environment's episodes be put back exactly? Tried out on the environment itself."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
from gymnasium import Env

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.interface import sample_action
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.envs.single import make_env

# A prime number: few episodes are so long that nothing is left to replay.
_FIRST_STEPS, _STEPS, _SEED = 12, 23, 20_000
N_TRIED = _FIRST_STEPS + _STEPS


def replay_problem(spec: EnvConfig, *, in_worker: bool = False) -> str | None:
    """Play a little, and bring the same moment back in a fresh environment.

    An environment that was reset before must not differ from one that was not: hidden state, the
    time of day and random numbers out of the seed's reach show here.

    Args:
        spec: The environment.
        in_worker: Whether it will train in a process of its own, whose global generators each
            episode seeds.

    Returns:
        None if both agree bit for bit so far, which proves nothing of later steps; otherwise what
        differs.
    """
    played, fresh = make_env(spec, recorded=True), make_env(spec, recorded=True)
    assert isinstance(played, RecordedEpisodes)
    assert isinstance(fresh, RecordedEpisodes)
    played.has_own_process = fresh.has_own_process = in_worker
    try:
        if played.has_state:
            return None
        with generators_kept() if in_worker else nullcontext():
            return _difference(played, fresh)
    except Exception as error:
        # Whatever breaks an environment will be seen in training, with its traceback.
        return f"trying it out failed: {type(error).__name__}: {error}"
    finally:
        played.close()
        fresh.close()


def _difference(played: RecordedEpisodes, fresh: RecordedEpisodes) -> str | None:
    played.action_space.seed(_SEED)
    _play(played, _FIRST_STEPS, _SEED)
    rewards = _play(played, _STEPS, _SEED + 1)
    state = played.episode_state()
    problem = fresh.restore_episode(state, np.array(rewards))
    return problem or fresh.forgotten(state) or _next_differs(played, fresh)


def _play(env: Env, n_steps: int, seed: int) -> list[float]:
    """Play an episode's first steps with random actions; return its rewards."""
    env.reset(seed=seed)
    rewards: list[float] = []
    for _ in range(n_steps):
        _, reward, terminated, truncated, _ = env.step(sample_action(env))
        rewards.append(float(reward))
        if terminated or truncated:
            env.reset(seed=seed + 2)
            rewards = []
    return rewards


def _next_differs(played: RecordedEpisodes, fresh: RecordedEpisodes) -> str | None:
    """Compare one more step of both, and the beginning of another episode."""
    action = sample_action(played)
    # Each in a process of its own would draw the same.
    with generators_kept() if played.has_own_process else nullcontext():
        before = played.step(action)
    results = [before, fresh.step(action)]
    if float(results[0][1]) != float(results[1][1]):
        return "the reward after the replayed episode differs"
    if results[0][2:4] != results[1][2:4]:
        return "the end after the replayed episode differs"
    after = [env.episode_state()["episode"] for env in (played, fresh)]
    if after[0]["observation"] != after[1]["observation"]:
        return "the observation after the replayed episode differs"
    for env in (played, fresh):
        env.reset()
    digests = [env.episode_state()["episode"] for env in (played, fresh)]
    if digests[0]["seed"] != digests[1]["seed"]:
        return "the seed of the next episode differs"
    if digests[0]["observation"] != digests[1]["observation"]:
        return "the first observation of the next episode differs, with the same seed"
    return None
