"""How often a run is evaluated and saved: checks of what is set, and the values of `auto`."""

from __future__ import annotations

import math
from collections.abc import Callable

from rlzoo_plus.config.catalog import AlgorithmSpec, Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import RunConfig, is_own_vec_env
from rlzoo_plus.config.stages import decides_by_evaluation
from rlzoo_plus.errors import ConfigError

# Evaluations of a run, and episodes of an evaluation that decides how something goes on.
_FEWEST, _MOST = 5, 20
# Share of the run's environment steps that evaluations take, unless the fewest take more.
_LARGEST_SHARE = 0.1
# Assumed where the environment does not tell how long an episode can be.
_UNKNOWN_EPISODE = 1_000
_MOST_EVAL_ENVS = 10
# Steps of an episode with `eval.max_episode_steps=auto`, without a limit of the environment itself;
# episodes of the environments of Gymnasium end after 1,600 at most.
LONGEST_EVALUATED = 10_000


def check_cadence(config: RunConfig, spec: AlgorithmSpec) -> RunConfig:
    """Check what is set, and resolve what needs no environment.

    Raises:
        ConfigError: Evaluations or checkpoints are more frequent than rollouts, or a condition to
            stop needs evaluations. It names all such mistakes.
    """
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    mistakes = []
    for key in ("eval", "checkpoint"):
        every = getattr(config, key).every_steps
        if isinstance(every, int) and every < rollout:
            if spec.family is Family.ON_POLICY:
                n_steps = config.algo.hyperparams.get("n_steps")
                how = f"n_steps {n_steps} x n_envs {config.n_envs} = {rollout}"
            else:
                how = f"one update every {rollout} steps of n_envs {config.n_envs}"
            mistakes.append(
                f"{key}.every_steps={every} is below one rollout ({how}). Set it to at least "
                f"{rollout}."
            )
    if config.eval.every_steps is None:
        mistakes += [
            f"stop.{key} needs evaluations, but eval.every_steps=null. Set eval.every_steps=auto."
            for key in ("reward_threshold", "no_improvement_evals")
            if getattr(config.stop, key) is not None
        ]
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    episodes = config.eval.episodes
    if config.eval.every_steps is None and episodes == "auto":
        episodes = _MOST  # never played, but part of the hash
    return _with(config, config.eval.every_steps, episodes)


def with_schedule(
    config: RunConfig, longest_episode: Callable[[], int | None], *, decides: bool = False
) -> RunConfig:
    """Return the configuration with numbers for `eval.every_steps=auto` and `eval.episodes=auto`.

    As many evaluations of as many episodes, at most twenty each, as take at most a tenth of the
    environment steps if no episode ends early. At least five evaluations are made, of one episode
    or more; of at least five if evaluations decide how a run or a study goes on.

    Args:
        config: A checked configuration.
        longest_episode: Returns the time limit of an episode [steps], None if it is not known;
            only called where something is automatic.
        decides: Whether somebody outside decides by the evaluations.
    """
    every, episodes = config.eval.every_steps, config.eval.episodes
    if every != "auto" and episodes != "auto":
        return config
    total, stop = config.n_timesteps, config.stop
    affordable = int(_LARGEST_SHARE * total / _expected_episode(config, longest_episode()))
    if every == "auto":
        count = math.isqrt(affordable) if episodes == "auto" else affordable // episodes
        rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
        every = max(-(-total // _within(count)), rollout)
    if episodes == "auto":
        assert every is not None
        decides = decides or (stop.reward_threshold, stop.no_improvement_evals) != (None, None)
        decides = decides or decides_by_evaluation(config)
        episodes = _within(affordable // -(-total // every), _FEWEST if decides else 1)
    return _with(config, every, episodes)


def trained_steps(config: RunConfig) -> int:
    """Return the environment steps of a whole run: training ends after a whole rollout.

    One that collects whole episodes may take more.
    """
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    return -(-config.n_timesteps // rollout) * rollout


def evaluation_steps(config: RunConfig, longest_episode: int | None) -> int | None:
    """Return the most environment steps that all evaluations take; None if not known."""
    every, episodes = config.eval.every_steps, config.eval.episodes
    if every is None:
        return 0
    most = longest_evaluated(config, longest_episode)
    if most is None or not isinstance(every, int) or not isinstance(episodes, int):
        return None
    count = -(-config.n_timesteps // every) + config.eval.at_start
    return count * episodes * most


def longest_evaluated(config: RunConfig, longest_episode: int | None) -> int | None:
    """Return the steps after which an episode of an evaluation ends, None if that is not known."""
    most = config.eval.max_episode_steps
    if most == "auto":
        cut = LONGEST_EVALUATED if longest_episode is None else None
        most = None if is_own_vec_env(config.vec_env) else cut
    return min((steps for steps in (most, longest_episode) if steps is not None), default=None)


def _expected_episode(config: RunConfig, limit: int | None) -> int:
    """Return the steps of an episode of an evaluation if it does not end early."""
    known = [steps for steps in (limit, config.eval.max_episode_steps) if isinstance(steps, int)]
    return min(known, default=_UNKNOWN_EPISODE)


def _within(count: int, fewest: int = _FEWEST) -> int:
    return min(max(count, fewest), _MOST)


def _with(config: RunConfig, every: int | str | None, episodes: int | str) -> RunConfig:
    n_envs = config.eval.n_envs
    if n_envs == "auto" and isinstance(episodes, int):
        n_envs = min(episodes, _MOST_EVAL_ENVS)
    changes = {"every_steps": every, "episodes": episodes, "n_envs": n_envs}
    return config.model_copy(update={"eval": config.eval.model_copy(update=changes)})
