"""Tries whether an environment repeats itself bit for bit, as exact resume needs it."""

from __future__ import annotations

import contextlib

import numpy as np
from gymnasium import Env

from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.episodes import RecordedEpisodes
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.envs.trial import Trial, errors_in_one_line, sample_action
from rlzoo_plus.errors import ConfigError

# A prime number: few episodes are so long that nothing is left to replay.
N_BEFORE, N_AFTER, _SEED = 12, 23, 20_000
N_TRIED = N_BEFORE + N_AFTER


def replay_problem(
    spec: EnvConfig, trial: Trial | None = None, *, in_worker: bool = False
) -> str | None:
    """Return what differs if a moment is restored in a fresh environment after a little play.

    An environment that was reset before must not differ from one that was not: hidden state, the
    time of day and random numbers out of the seed's reach show here. None means that both agree bit
    for bit so far, which proves nothing of later steps. With `in_worker` it will train in a process
    of its own, whose global generators each episode seeds. A `trial` looks at every step.

    Raises:
        ConfigError: The environment raises, or the trial finds a mistake.
    """
    played, fresh = make_env(spec, recorded=True), make_env(spec, recorded=True)
    assert isinstance(played, RecordedEpisodes)
    assert isinstance(fresh, RecordedEpisodes)
    played.has_own_process = fresh.has_own_process = in_worker
    try:
        if played.has_state:
            return None
        with generators_kept() if in_worker else contextlib.nullcontext():
            played.action_space.seed(_SEED)
            with errors_in_one_line(getattr(spec, "id", ""), "reset() or step() in a trial"):
                _play(played, N_BEFORE, _SEED, trial)
                rewards = _play(played, N_AFTER, _SEED + 1, trial)
            state = played.episode_state()
            problem = fresh.restore_episode(state, np.array(rewards))
            return problem or fresh.forgotten(state) or _next_differs(played, fresh)
    except ConfigError:
        raise
    except Exception as error:
        return f"trying it out failed: {type(error).__name__}: {error}"
    finally:
        played.close()
        fresh.close()


def _play(env: Env, n_steps: int, seed: int, trial: Trial | None) -> list[float]:
    """Play an episode's first steps with random actions; return its rewards."""
    first = env.reset(seed=seed)
    rewards: list[float] = []
    for _ in range(n_steps):
        if trial is not None and not rewards:
            trial.look_at_reset(first)
        found = env.step(sample_action(env))
        if trial is not None:
            trial.look_at_step(found)
        rewards.append(float(found[1]))
        if found[2] or found[3]:
            first = env.reset(seed=seed + 2)
            rewards = []
    return rewards


def _next_differs(played: RecordedEpisodes, fresh: RecordedEpisodes) -> str | None:
    """Compare one more step of both, and the beginning of another episode."""
    action = sample_action(played)
    # Each in a process of its own would draw the same.
    with generators_kept() if played.has_own_process else contextlib.nullcontext():
        expected = played.step(action)
    found = fresh.step(action)
    if float(expected[1]) != float(found[1]):
        return "the reward after the replayed episode differs"
    if expected[2:4] != found[2:4]:
        return "the end after the replayed episode differs"
    last = [env.episode_state()["episode"]["observation"] for env in (played, fresh)]
    if last[0] != last[1]:
        return "the observation after the replayed episode differs"
    for env in (played, fresh):
        env.reset()
    first = [env.episode_state()["episode"] for env in (played, fresh)]
    if first[0]["seed"] != first[1]["seed"]:
        return "the seed of the next episode differs"
    if first[0]["observation"] != first[1]["observation"]:
        return "the first observation of the next episode differs, with the same seed"
    return None
