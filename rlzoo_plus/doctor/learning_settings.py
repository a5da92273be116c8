"""Settings with which an algorithm cannot learn, whatever the environment."""

from __future__ import annotations

from collections.abc import Iterator

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps, trains_by_episode
from rlzoo_plus.config.schedules import parse_schedule
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.learning_cause import Cause

_KEY = "algo.hyperparams."
_FEWEST_ROLLOUTS = 3
_FEWEST_TRANSITIONS = 1_000
_STEP_SIZES = (1e-6, 2e-2)
_CLIP_RANGES = (0.01, 1.0)
_LARGEST_ENTROPY = 0.3
_SMALLEST_GRADIENT = 1e-2
_CLIPPED_REWARD, _CLIPPED_OBSERVATION = 1e3, 1.0
# Of an episode; and a horizon that is enough for any [steps].
_SHORTEST_HORIZON, _LONG_HORIZON = 0.04, 20.0


def causes_in_updates(config: RunConfig, limit: int | None) -> Iterator[Cause]:
    """Yield why no update, or nearly none, is ever made.

    Args:
        config: The run.
        limit: Steps after which an episode is truncated, None without a limit.
    """
    values, total = config.algo.hyperparams, config.n_timesteps
    spec = get_algorithm(config.algo.name)
    starts = values.get("learning_starts")
    if isinstance(starts, int) and starts >= total:
        yield Cause(
            "late_start",
            f"{_KEY}learning_starts={starts} is not below n_timesteps={total}: the run ends before "
            "the first update",
            f"Set {_KEY}learning_starts to at most {max(total // 10, 1)}, or n_timesteps higher",
        )
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    if trains_by_episode(config.algo) and spec.family is Family.OFF_POLICY:
        rollout = (limit or 1) * config.n_envs
    if spec.family is not Family.EVOLUTION and total < _FEWEST_ROLLOUTS * rollout:
        yield Cause(
            "few_updates",
            f"n_timesteps={total} is {total / rollout:.1f} rollouts of {rollout} steps: the policy "
            "is updated so many times",
            f"Set n_timesteps to at least {10 * rollout}, or collect fewer steps before an update",
        )


def causes_in_settings(config: RunConfig, limit: int | None) -> Iterator[Cause]:
    """Yield settings that are far from those with which anything was ever learned."""
    yield from _step_size(config)
    yield from _discount(config, limit)
    yield from _replay(config)
    yield from _clipping(config)
    yield from _normalization(config)


def _step_size(config: RunConfig) -> Iterator[Cause]:
    values, spec = config.algo.hyperparams, get_algorithm(config.algo.name)
    rate, (least, most) = values.get("learning_rate"), _STEP_SIZES
    if rate is None or spec.family is Family.EVOLUTION:
        return
    start = parse_schedule(rate, f"{_KEY}learning_rate").start
    if not least <= start <= most:
        what = "hardly changes the weights" if start < least else "throws the weights away"
        yield Cause(
            "learning_rate",
            f"{_KEY}learning_rate={rate}: an update {what}; what learns is from {least:g} to "
            f"{most:g}",
            f"Set {_KEY}learning_rate=3e-4",
        )


def _discount(config: RunConfig, limit: int | None) -> Iterator[Cause]:
    gamma = config.algo.hyperparams.get("gamma")
    if not isinstance(gamma, (int, float)) or gamma >= 1:
        return
    horizon, episode = 1.0 / (1.0 - gamma), limit or 1000
    if horizon < min(_SHORTEST_HORIZON * episode, _LONG_HORIZON):
        yield Cause(
            "discount",
            f"{_KEY}gamma={gamma:g} sees {horizon:.0f} steps ahead, of an episode of {episode}: "
            "what comes later counts for nothing",
            f"Set {_KEY}gamma=0.99",
        )


def _replay(config: RunConfig) -> Iterator[Cause]:
    values, total = config.algo.hyperparams, config.n_timesteps
    size, tau = values.get("buffer_size"), values.get("tau")
    if isinstance(size, int) and size < min(_FEWEST_TRANSITIONS, total // 2):
        yield Cause(
            "small_buffer",
            f"{_KEY}buffer_size={size} keeps the last {size} of {total} steps: what was learned of "
            "the others is forgotten",
            f"Set {_KEY}buffer_size={min(total, 100_000)}",
        )
    if tau == 0:
        yield Cause(
            "target_rate",
            f"{_KEY}tau=0: the target network stays at its random weights",
            f"Set {_KEY}tau=0.005",
        )
    final = values.get("exploration_final_eps")
    if isinstance(final, (int, float)) and final > 0.5:
        yield Cause(
            "exploration",
            f"{_KEY}exploration_final_eps={final:g}: most actions stay random to the end",
            f"Set {_KEY}exploration_final_eps=0.05",
        )


def _clipping(config: RunConfig) -> Iterator[Cause]:
    values = config.algo.hyperparams
    entropy = values.get("ent_coef")
    is_on_policy = get_algorithm(config.algo.name).family is Family.ON_POLICY
    if is_on_policy and isinstance(entropy, (int, float)) and entropy > _LARGEST_ENTROPY:
        yield Cause(
            "entropy",
            f"{_KEY}ent_coef={entropy:g}: acting at random pays more than the reward",
            f"Set {_KEY}ent_coef=0.01, or 0",
        )
    clip, (least, most) = values.get("clip_range"), _CLIP_RANGES
    if clip is not None:
        start = parse_schedule(clip, f"{_KEY}clip_range").start
        if not least <= start <= most:
            yield Cause(
                "clip_range",
                f"{_KEY}clip_range={clip}: what learns is from {least:g} to {most:g}",
                f"Set {_KEY}clip_range=0.2",
            )
    norm = values.get("max_grad_norm")
    if isinstance(norm, (int, float)) and norm < _SMALLEST_GRADIENT:
        yield Cause(
            "gradient_clipping",
            f"{_KEY}max_grad_norm={norm:g}: gradients are cut to nothing",
            f"Set {_KEY}max_grad_norm=0.5",
        )


def _normalization(config: RunConfig) -> Iterator[Cause]:
    normalize = config.normalize
    if normalize and normalize.reward and normalize.clip_reward > _CLIPPED_REWARD:
        yield Cause(
            "reward_clipping",
            f"normalize.clip_reward={normalize.clip_reward:g}: a rare large reward passes whole, "
            "after it was divided by the small spread of the others",
            "Set normalize.clip_reward=10",
        )
    if normalize and normalize.observation and normalize.clip_observation < _CLIPPED_OBSERVATION:
        yield Cause(
            "observation_clipping",
            f"normalize.clip_observation={normalize.clip_observation:g} standard deviations: most "
            "of each observation is cut off",
            "Set normalize.clip_observation=10",
        )
