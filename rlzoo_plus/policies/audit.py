"""A reward audit: what pays without being the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlzoo_plus.agents.policy import Policy
from rlzoo_plus.policies.baselines import baselines
from rlzoo_plus.policies.calibration import correlation
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.recorder import record_episodes
from rlzoo_plus.runs.run import Run

# A share of what the policy gains over the worst way to act.
_NEARLY_ALL, _MUCH = 0.9, 0.5
_PAYS_FOR_FAILURE = -0.3


@dataclass(frozen=True)
class Finding:
    """One thing that was found."""

    topic: str  # `value`, `actions`, `units`, `saliency` or `reward`
    text: str  # One sentence with its number
    data: Mapping[str, Any] = field(default_factory=dict)  # The numbers
    is_warning: bool = False  # Whether it deserves a look


def play_baselines(run: Run, policy: Policy, seeds: Sequence[int]) -> dict[str, list[Episode]]:
    """Play episodes of a run's environment without its policy: nothing, constant, random."""
    ways = baselines(policy.action_space, maskable=policy.maskable).items()
    return {name: record_episodes(run, way, seeds, observations=False)[0] for name, way in ways}


def audit(policy: Sequence[Episode], others: Mapping[str, Sequence[Episode]]) -> list[Finding]:
    """Return what stands out in the rewards."""
    everything = [*policy, *(episode for episodes in others.values() for episode in episodes)]
    found = [_earning(name, episodes, policy, others) for name, episodes in others.items()]
    if all(episode.success is None for episode in everything):
        text = (
            "the environment reports no success (is_success in its last info), so the reward "
            "cannot be compared with it"
        )
        return [*found, Finding("reward", text)]
    return [*found, *_terms_against_success(everything), *_high_without_success(everything)]


def _earning(
    name: str,
    episodes: Sequence[Episode],
    policy: Sequence[Episode],
    others: Mapping[str, Sequence[Episode]],
) -> Finding:
    """Return what a way to act earns; a warning if that is much of what the policy earns."""
    earned, best = _mean_return(episodes), _mean_return(policy)
    worst = min(best, *(_mean_return(e) for e in others.values()))
    # If nothing differs, there is nothing to learn.
    share = (earned - worst) / (best - worst) if best > worst else 1.0
    success, of_policy = _success(episodes), _success(policy)
    is_failing = success is not None and of_policy is not None and success < 0.5
    is_hack = share >= (_MUCH if is_failing else _NEARLY_ALL)
    what = {"nothing": "doing nothing", "random": "acting at random"}.get(name, name)
    text = f"{what} earns {earned:.4g} an episode"
    text += "" if success is None else f" and succeeds in {100 * success:.0f}%"
    text += f"; the policy earns {best:.4g}"
    text += "" if of_policy is None else f" and succeeds in {100 * of_policy:.0f}%"
    term = _largest_term(episodes)
    if is_hack and term is not None:
        text += f"; most of what {what} earns is the term {term[0]}, {term[1]:.4g}"
    data = {"acting": name, "mean_return": earned, "share": share, "success": success}
    return Finding("reward", text, {**data, "term": term and term[0]}, is_warning=is_hack)


def _terms_against_success(episodes: Sequence[Episode]) -> list[Finding]:
    totals = [episode.term_totals() for episode in episodes]
    known = [k for k, episode in enumerate(episodes) if episode.success is not None]
    success = np.array([float(bool(episodes[k].success)) for k in known])
    found = []
    for name in dict.fromkeys(name for row in totals for name in row):
        sums = np.array([totals[k].get(name, 0.0) for k in known])
        r = correlation(sums, success)
        if r is None:
            continue
        is_against = r <= _PAYS_FOR_FAILURE and float(np.mean(sums)) > 0
        text = f"the term {name} correlates {r:+.2f} with success over {len(known)} episodes"
        text += ": it pays more where the task fails" if is_against else ""
        found.append(Finding("reward", text, {"term": name, "correlation": r}, is_against))
    return found


def _high_without_success(episodes: Sequence[Episode]) -> list[Finding]:
    """Return how many episodes failed with a return as high as that of successes."""
    successes = [e.episode_return for e in episodes if e.success]
    failures = [e for e in episodes if e.success is False]
    if not successes:
        text = f"none of {len(episodes)} episodes succeeded, and they return up to "
        highest = max(e.episode_return for e in episodes)
        return [Finding("reward", f"{text}{highest:.4g}", {"successes": 0, "highest": highest})]
    usual = float(np.median(successes))
    high = [episode for episode in failures if episode.episode_return >= usual]
    text = (
        f"{len(high)} of {len(failures)} episodes without success return at least {usual:.4g}, the "
        f"median of those with it"
    )
    term = _largest_term(high) if high else None
    if term is not None:
        text += f"; most of it is the term {term[0]}, {term[1]:.4g}"
    data = {"count": len(high), "failures": len(failures), "median_of_successes": usual}
    return [Finding("reward", text, {**data, "term": term and term[0]}, is_warning=bool(high))]


def _largest_term(episodes: Sequence[Episode]) -> tuple[str, float] | None:
    totals = [episode.term_totals() for episode in episodes]
    names = dict.fromkeys(name for row in totals for name in row)
    means = {name: float(np.mean([row.get(name, 0.0) for row in totals])) for name in names}
    return max(means.items(), key=lambda item: item[1]) if means else None


def _mean_return(episodes: Sequence[Episode]) -> float:
    return float(np.mean([episode.episode_return for episode in episodes]))


def _success(episodes: Sequence[Episode]) -> float | None:
    known = [float(e.success) for e in episodes if e.success is not None]
    return float(np.mean(known)) if known else None
