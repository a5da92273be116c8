"""Warnings about runs on machines that may be taken away: what a Spot notice is too short for."""

from __future__ import annotations

from collections.abc import Iterator

from rlzoo_plus.analysis.run_list import duration
from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import RunConfig

# A Spot machine is told two minutes before its end; the rest is for the checkpoint and sending it.
NOTICE_S = 110.0
# More work than this is not worth losing to a machine that ends without notice [s].
_LARGEST_LOSS_S = 1800.0


def notice_advice(
    config: RunConfig, rate: float | None, episode_steps: int | None
) -> Iterator[str]:
    """Yield what is doubtful about a run on a Spot machine."""
    where = f"{config.algo.name} on {config.env.name}"
    steps, how = iteration_steps(config, episode_steps)
    if rate and steps is not None and steps / rate > NOTICE_S:
        yield (
            f"an iteration of {where} takes about {duration(steps / rate)} ({how}, at {rate:,.0f} "
            "steps/s), longer than a Spot machine's notice of two minutes. Make it shorter, or set "
            "infra.spot=false."
        )
    gap = _checkpoint_gap_s(config, rate)
    if gap is None:
        yield (
            "checkpoint.every_steps=null and checkpoint.every_minutes=null: a machine that ends "
            "without notice takes the whole run with it. Set checkpoint.every_minutes=5."
        )
    elif gap > _LARGEST_LOSS_S:
        yield (
            f"checkpoints of {where} are {duration(gap)} apart, which a machine that ends without "
            "notice takes with it. Set checkpoint.every_minutes=5."
        )


def iteration_steps(config: RunConfig, episode_steps: int | None) -> tuple[int | None, str]:
    """Return the environment steps between two moments at which a run can stop, and why.

    Args:
        config: The run.
        episode_steps: Longest possible episode, None if not known; then an iteration of whole
            episodes has no known length.
    """
    spec, values, n_envs = get_algorithm(config.algo.name), config.algo.hyperparams, config.n_envs
    if spec.family is Family.ON_POLICY:
        steps = rollout_steps(config.algo, spec, n_envs)
        return steps, f"n_steps {steps // n_envs} x n_envs {n_envs}"
    whole, plain = "", rollout_steps(config.algo, spec, n_envs)
    frequency = values.get("train_freq", 1)
    if spec.family is not Family.OFF_POLICY:
        # Two episodes for each direction, and each of them `n_eval_episodes` times.
        episodes = 2 * int(values.get("n_delta", 8)) * int(values.get("n_eval_episodes", 1))
        whole = f"{episodes} episodes"
    elif isinstance(frequency, (list, tuple)) and frequency[1] == "episode":
        episodes = int(frequency[0]) * n_envs
        whole = f"train_freq of {episodes} episodes"
    if not whole:
        return plain, f"train_freq x n_envs {n_envs}"
    return (None if episode_steps is None else episodes * episode_steps), whole


def _checkpoint_gap_s(config: RunConfig, rate: float | None) -> float | None:
    """Return the time between checkpoints, None without any; 0 if it is not known."""
    minutes, steps = config.checkpoint.every_minutes, config.checkpoint.every_steps
    gaps = [] if minutes is None else [60.0 * minutes]
    if steps is not None:
        gaps.append(steps / rate if rate else 0.0)
    return min(gaps, default=None)
