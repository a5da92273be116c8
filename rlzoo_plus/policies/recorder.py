"""Keeps the episodes of an evaluation while it is played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from rlzoo_plus.envs.monitor import is_number
from rlzoo_plus.policies.entries import entry_names, one_of
from rlzoo_plus.policies.episode import Episode, digest_of
from rlzoo_plus.policies.values import Values
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.evaluation import Step, evaluate, one_torch_thread

_PLAYED_AT_ONCE = 10


class _Row(NamedTuple):
    observation: Any
    digest: int
    action: np.ndarray
    reward: Any
    terms: dict[str, float]
    value: float | None


class EpisodeRecorder:
    """Keeps the episodes that `evaluate` plays; give it as `watch`."""

    def __init__(
        self, policy: Any, seeds: Sequence[int], n_envs: int, *, observations: bool = False
    ) -> None:
        """Keep what a policy, or one of `baselines`, plays from these seeds."""
        self.policy = policy
        self._values = Values(policy)
        self._keeps_observations = observations
        self._seeds = [list(seeds[rank::n_envs]) for rank in range(n_envs)]
        self._rows: list[list[_Row]] = [[] for _ in range(n_envs)]
        self._finished: list[list[Episode]] = [[] for _ in range(n_envs)]
        self._starts = np.ones(n_envs, dtype=bool)

    def __call__(self, step: Step, playing: np.ndarray) -> None:
        """Keep a step of the environments whose episode counts."""
        values = self._values(step.observation, step.action, self._starts)
        self._starts = step.done
        for rank in np.flatnonzero(playing).tolist():
            info, seen = step.infos[rank], one_of(step.observation, rank)
            row = _Row(
                seen if self._keeps_observations else None,
                digest_of(seen),
                np.array(step.action[rank]),
                step.reward[rank],
                terms_of(info),
                None if values is None else float(values[rank]),
            )
            self._rows[rank].append(row)
            if step.done[rank]:
                # A vectorised environment may need a step between two episodes.
                if "episode" in info:
                    self._finished[rank].append(self._episode(rank, info))
                self._rows[rank] = []

    def episodes(self) -> list[Episode]:
        """Return the episodes in the order of their seeds."""
        n_envs = len(self._finished)
        count = sum(map(len, self._finished))
        return [self._finished[k % n_envs][k // n_envs] for k in range(count)]

    def _episode(self, rank: int, info: dict[str, Any]) -> Episode:
        rows, kind = self._rows[rank], self._values.kind
        names = dict.fromkeys(name for row in rows for name in row.terms)
        success = info.get("is_success")
        return Episode(
            seed=self._seeds[rank][len(self._finished[rank])],
            actions=np.stack([row.action for row in rows]),
            rewards=np.array([row.reward for row in rows]),
            terms={n: np.array([row.terms.get(n, np.nan) for row in rows]) for n in names},
            values=None if kind is None else np.array([row.value for row in rows]),
            digests=np.array([row.digest for row in rows], np.uint64),
            value_kind=kind,
            last_observation=info["terminal_observation"],
            end_reason=end_of(info),
            terminated=not info.get("TimeLimit.truncated", False),
            success=None if success is None else bool(success),
            observations=[r.observation for r in rows] if self._keeps_observations else None,
        )


def record_episodes(
    run: Run,
    policy: Any,
    seeds: Sequence[int],
    *,
    deterministic: bool = True,
    observations: bool = True,
) -> tuple[list[Episode], list[str] | None]:
    """Play episodes in a run's environment and keep them.

    Returns:
        The episodes, and the names of the observation's entries, see `entry_names`.
    """
    made = run.env(min(_PLAYED_AT_ONCE, len(seeds)))
    with one_torch_thread(), closing(made) as venv:
        recorder = EpisodeRecorder(policy, seeds, venv.num_envs, observations=observations)
        evaluate(policy, venv, seeds, deterministic=deterministic, watch=recorder)
        return recorder.episodes(), entry_names(venv)


def terms_of(info: Mapping[str, Any]) -> dict[str, float]:
    """Return the weighted terms of the reward that an info reports, none if it does not."""
    terms = info.get("reward_terms")
    if not isinstance(terms, Mapping):
        return {}
    return {str(name): float(value) for name, value in terms.items() if is_number(value)}


def end_of(info: Mapping[str, Any]) -> str:
    """Return why an episode ended, from its last info."""
    reason = info.get("end_reason")
    if isinstance(reason, str):
        return reason
    return "time_limit" if info.get("TimeLimit.truncated", False) else "terminated"
