"""How often a run is evaluated and saved: checks of what is set, and what `auto` stands for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from rlzoo_plus.config.catalog import AlgorithmSpec, Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import EvalConfig, RunConfig
from rlzoo_plus.errors import ConfigError

# Of evaluations in a run, and of episodes in an evaluation.
FEWEST, MOST = 5, 20
# Of evaluations in a run's environment steps, as long as there can be the fewest.
LARGEST_SHARE = 0.1
# Where the environment does not say how long an episode can be.
_UNKNOWN_EPISODE = 1_000
_MOST_EVAL_ENVS = 10


def check_cadence(config: RunConfig, spec: AlgorithmSpec) -> RunConfig:
    """Check what is set, and resolve what needs no environment.

    Raises:
        ConfigError: Something is to happen more often than once in a rollout.
    """
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    for key, every in (
        ("eval.every_steps", config.eval.every_steps),
        ("checkpoint.every_steps", config.checkpoint.every_steps),
    ):
        if isinstance(every, int) and every < rollout:
            if spec.family is Family.ON_POLICY:
                n_steps = config.algo.hyperparams.get("n_steps")
                how = f"n_steps {n_steps} x n_envs {config.n_envs} = {rollout}"
            else:
                how = f"one update every {rollout} steps of n_envs {config.n_envs}"
            raise ConfigError(
                f"{key}={every} is below one rollout ({how}). Set it to at least {rollout}."
            )
    episodes = config.eval.episodes
    if config.eval.every_steps is None and episodes == "auto":
        episodes = MOST  # never played, but part of the hash
    return _with(config, config.eval.every_steps, episodes)


def with_schedule(config: RunConfig, longest_episode: Callable[[], int | None]) -> RunConfig:
    """Return the configuration with numbers for `eval.every_steps=auto` and `eval.episodes=auto`.

    As many evaluations of as many episodes, at most twenty each, as keep them under a tenth of the
    environment steps if no episode ends early; but at least five of five.

    Args:
        config: A checked configuration.
        longest_episode: Returns the steps after which an episode is cut off, None if nothing is
            known; only called where something is automatic.
    """
    every, episodes = config.eval.every_steps, config.eval.episodes
    if every != "auto" and episodes != "auto":
        return config
    total = config.n_timesteps
    affordable = int(LARGEST_SHARE * total / (longest_episode() or _UNKNOWN_EPISODE))
    if every == "auto":
        count = math.isqrt(affordable) if episodes == "auto" else affordable // episodes
        rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
        every = max(-(-total // _within(count)), rollout)
    if episodes == "auto":
        assert every is not None
        episodes = _within(affordable // -(-total // every))
    return _with(config, every, episodes)


def continued_schedule(before: RunConfig, now: RunConfig) -> RunConfig:
    """Return a configuration that keeps the schedule with which its run was begun.

    Args:
        before: The one it was begun with.
        now: The one asked for; what is not `auto` there stays as it is.
    """
    if before.eval.every_steps is None:
        return now
    keys = ("every_steps", "episodes", "n_envs")
    kept = {key: getattr(before.eval, key) for key in keys if getattr(now.eval, key) == "auto"}
    return now.model_copy(update={"eval": now.eval.model_copy(update=kept)})


def evaluation_steps(config: RunConfig, longest_episode: int | None) -> int | None:
    """Return the environment steps of all evaluations at most; None if that is not known.

    Args:
        config: With a schedule.
        longest_episode: Steps after which an episode is cut off.
    """
    every, episodes = config.eval.every_steps, config.eval.episodes
    if every is None:
        return 0
    if longest_episode is None or not isinstance(every, int) or not isinstance(episodes, int):
        return None
    count = -(-config.n_timesteps // every) + config.eval.at_start
    return count * episodes * longest_episode


def _within(count: int) -> int:
    return min(max(count, FEWEST), MOST)


def _with(config: RunConfig, every: int | str | None, episodes: int | str) -> RunConfig:
    n_envs = config.eval.n_envs
    if n_envs == "auto" and isinstance(episodes, int):
        n_envs = min(episodes, _MOST_EVAL_ENVS)
    text = config.eval.model_dump_json()
    return config.model_copy(update={"eval": _evaluation(text, every, episodes, n_envs)})


# The jobs of a sweep share it.
@lru_cache
def _evaluation(
    given: str, every: int | str | None, episodes: int | str, n_envs: int | str
) -> EvalConfig:
    changes = {"every_steps": every, "episodes": episodes, "n_envs": n_envs}
    return EvalConfig.model_validate_json(given).model_copy(update=changes)
