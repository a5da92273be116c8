"""Why a run does not learn: causes from short probes and from settings, the most certain first."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.learning_cause import Cause
from rlzoo_plus.doctor.learning_probe import MODERATE, SMALL, Evidence, Pair, moved_of, probe
from rlzoo_plus.doctor.learning_reward import reward_causes
from rlzoo_plus.doctor.learning_settings import causes_in_settings, causes_in_updates

_MOST_NAMED = 6
# A Gaussian policy begins with a standard deviation of 1.
_WIDEST_ACTION, _NARROWEST_ACTION = 20.0, 0.02
_LARGE, _SMALL = 1e3, 1e-3
_OUTSIDE = 1e-3
_SHORT, _FATAL, _SHORTEST_LIMIT = 2.0, 3.5, 8


def why_not(config: RunConfig) -> list[Cause]:
    """Probe the environment of a run for some seconds; return the causes, the first one first.

    Raises:
        ConfigError: The environment cannot be made, or ends with an error.
    """
    seen = probe(config)
    checks: tuple[Callable[[RunConfig, Evidence], Iterator[Cause]], ...] = (
        _numbers,
        lambda config, seen: causes_in_updates(config, seen.limit),
        _blindness,
        _resets,
        _control,
        reward_causes,
        _ends,
        _observations,
        lambda config, seen: causes_in_settings(config, seen.limit),
    )
    causes = [cause for check in checks for cause in check(config, seen)]
    return sorted(causes, key=lambda cause: cause.is_hint)


def _numbers(_config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    if seen.not_finite:
        yield Cause(
            "not_finite",
            f"{seen.not_finite}: one such number makes all weights NaN",
            "Return finite numbers: end the episode before the simulation breaks, and clip",
        )


def _blindness(_config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    lengths = [len(episode.rewards) for episode in seen.of("random", "nothing", "jumpy")]
    median = float(np.median(lengths)) if lengths else 0.0
    ended = all(episode.terminated or episode.truncated for episode in seen.of("random"))
    if ended and median <= _SHORT:
        yield Cause(
            "short_episodes",
            f"episodes end after {median:.0f} steps, whatever is done",
            "Check the condition of `terminated`, env.time_limit, and the start against the limits",
        )
    if not moved_of(seen.seen).any():
        yield Cause(
            "observation_constant",
            f"no entry of the observation ever changed in {len(seen.rewards)} steps",
            "Return what the simulation measures now, as a new array at each step",
        )


def _resets(_config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    if not seen.seeded:
        yield Cause(
            "seed_ignored",
            "reset(seed=0) twice, then the same actions, gave different episodes",
            "Call super().reset(seed=seed), draw from self.np_random only, and reset all state",
        )
    elif seen.leaks > 1e-3:
        yield Cause(
            "reset_leaks",
            f"with the same seed and actions, observations differ by {seen.leaks:.2g} after "
            "another episode was played in between",
            "Set everything in reset() that step() changes: velocities, filters, counters, targets",
        )
    if moved_of(seen.seen).any() and not np.ptp(np.array(seen.starts), axis=0).any():
        yield Cause(
            "same_start",
            f"{len(seen.starts)} seeds gave one start: what is learned holds for it alone",
            "Draw the start from self.np_random in reset()",
        )


def _control(config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    """Yield what is wrong between the action and what follows."""
    pairs, box = seen.pairs, seen.actions
    if not pairs or not moved_of(seen.seen).any():
        return
    if all(pair.lag is None for pair in pairs):
        yield Cause(
            "action_ignored",
            "different actions from the same state gave the same observations",
            "Let step() apply its action before the simulation moves on",
        )
        return
    late = min(pair.lag for pair in pairs if pair.lag is not None)
    # A picture may not show the first step of a slow motion.
    if late and not seen.pictured.all():
        yield Cause(
            "late",
            f"an action shows in observations {late + 1} steps later, not after its own step",
            "Read the sensors after the simulation has moved; against a delay that is real, put "
            "the last actions into the observation or set env.frame_stack",
        )
    if isinstance(box, spaces.Box):
        yield from _continuous_control(config, seen, box)


def _continuous_control(config: RunConfig, seen: Evidence, box: spaces.Box) -> Iterator[Cause]:
    same = {kind: _never(seen.pairs, kind) for kind in ("size", "opposite", "entry")}
    reversed_entries = _reversed(seen)
    high = float(np.abs(np.where(np.isfinite(box.high), box.high, np.inf)).max())
    if same["size"]:
        yield Cause(
            "action_saturated",
            f"{MODERATE:.0%} of the action range did what 100% does: the environment cuts actions "
            "off far inside of its action_space, and nearly all of them are extremes",
            "Declare the range that has an effect, e.g. Box(-1, 1), and scale inside",
        )
    if same["opposite"]:
        yield Cause(
            "action_unsigned",
            "an action and its negative did the same",
            "Use the sign of the action: look for abs(), squares, or clipping at zero",
        )
    if reversed_entries:
        yield Cause(
            "action_reversed",
            f"{_entries('action', reversed_entries)} moves the other way with env.wrappers than "
            "without them",
            "Check the sign of the action in the wrappers, or of the axis of that motor",
        )
    if same["entry"] and not same["opposite"]:
        yield Cause(
            "action_entry_ignored",
            f"{_entries('action', same['entry'])} had no effect over its whole range",
            "Connect it, or take it out of the action_space",
        )
    is_gaussian = get_algorithm(config.algo.name).family is Family.ON_POLICY
    if is_gaussian and not same["size"] and not _NARROWEST_ACTION <= high <= _WIDEST_ACTION:
        yield Cause(
            "action_bounds",
            f"actions go up to {high:g}, and the policy of {config.algo.name} begins with a "
            f"standard deviation of 1: it tries {'a small part' if high > 1 else 'only the ends'}",
            "Scale actions to -1 ... 1, e.g. with Gymnasium's RescaleAction in env.wrappers",
        )
    yield from _too_strong(seen)


def _too_strong(seen: Evidence) -> Iterator[Cause]:
    lengths = ([len(e.rewards) for e in seen.of(policy)] for policy in ("random", "small"))
    full, small = (float(np.median(found)) if found else 0.0 for found in lengths)
    if _SHORT < full <= _FATAL and small >= 3 * full:
        yield Cause(
            "action_strong",
            f"random actions end an episode after {full:.0f} steps, {SMALL:.0%} of their size "
            f"after {small:.0f} or more: the range is far too strong",
            "Let an action of 1 be a force or speed that the task needs",
        )


def _ends(_config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    lengths = [len(episode.rewards) for episode in seen.episodes if episode.policy != "small"]
    ended = [len(e.rewards) for e in seen.episodes if e.terminated]
    longest = max(lengths, default=0)
    whole = ended.count(longest)
    is_timeout = whole >= max(3, 0.6 * len(ended)) and longest > _SHORTEST_LIMIT
    if is_timeout and not any(e.truncated for e in seen.episodes):
        yield Cause(
            "timeout_terminated",
            f"{whole} of {len(ended)} episodes, of different policies, ended with terminated=True "
            f"after exactly {longest} steps: a time limit, learned as if nothing came after it",
            "Return truncated=True at the limit, or leave it to env.time_limit",
        )
    if seen.limit is None and longest >= 1_000 and not ended:
        yield Cause(
            "endless",
            f"no episode ended in {longest} steps, and there is no time limit",
            "Set env.time_limit=1000",
        )


def _observations(config: RunConfig, seen: Evidence) -> Iterator[Cause]:
    values = seen.seen
    moving = moved_of(values)
    if not moving.any():
        return
    known = (seen.low == seen.high) & ~seen.pictured
    dead = ~moving & ~seen.pictured & ~known
    lost = dead if seen.bare_moved is None else dead & seen.bare_moved
    if dead.any():
        # Robots in a plane have dead entries, and lack nothing: no more than a hint.
        is_hint = seen.bare_moved is None or not lost.any()
        entries = [seen.names[i] for i in np.flatnonzero(dead if is_hint else lost)]
        where = "" if is_hint else ", and do without env.wrappers"
        yield Cause(
            "observation_dead",
            f"{_entries('observation', entries)} never changed in {len(values)} steps{where}",
            "Connect the sensor, or leave the entry out",
            is_hint=is_hint,
        )
    slack = _OUTSIDE * np.maximum(np.abs(values), 1.0)
    outside = ((values < seen.low - slack) | (values > seen.high + slack)) & ~seen.pictured
    if outside.mean(axis=0).max() > _OUTSIDE:
        worst = int(np.argmax(outside.mean(axis=0)))
        yield Cause(
            "observation_bounds",
            f"observation {seen.names[worst]} was from {values[:, worst].min():.3g} to "
            f"{values[:, worst].max():.3g}, outside of its declared {seen.low[worst]:.3g} to "
            f"{seen.high[worst]:.3g}",
            "Declare the bounds that hold; infinite ones are allowed",
        )
    if config.normalize is None or not config.normalize.observation:
        yield from _scale(values[:, moving & ~seen.pictured])


def _scale(values: np.ndarray) -> Iterator[Cause]:
    sizes = np.percentile(np.abs(values), 90, axis=0) if values.size else np.ones(1)
    largest = float(sizes.max())
    if largest > _LARGE or largest < _SMALL:
        yield Cause(
            "observation_scale",
            f"entries of the observation are of size {sizes.min():.2g} to {largest:.2g}: a network "
            "expects about 1",
            "Set normalize.observation=true, or scale in the environment",
        )


def _never(pairs: list[Pair], kind: str) -> list[str]:
    """Return the entries of a kind of pair that made no difference from any state."""
    lags: dict[int, list[int | None]] = {}
    for pair in pairs:
        if pair.kind == kind:
            lags.setdefault(pair.index, []).append(pair.lag)
    return [str(i) for i, found in lags.items() if all(lag is None for lag in found)]


def _reversed(seen: Evidence) -> list[str]:
    """Return the entries of the action whose effect points the other way without wrappers."""
    against: dict[str, list[bool]] = {}
    for pair, bare in zip(seen.pairs, seen.bare, strict=False):
        if pair.kind == "entry" and pair.lag is not None and bare.lag is not None:
            both = float(np.linalg.norm(pair.change) * np.linalg.norm(bare.change))
            is_against = both > 0 and float(pair.change @ bare.change) < -0.5 * both
            against.setdefault(str(pair.index), []).append(is_against)
    return [entry for entry, found in against.items() if all(found)]


def _entries(what: str, names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{what} {', '.join(names[:_MOST_NAMED])}{more}"
