"""Evaluation: plays whole episodes with a policy; every reported metric comes from here."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from rlzoo_plus.analysis.statistics import iqm
from rlzoo_plus.artifacts.result import EvaluationRecord
from rlzoo_plus.envs.episodes import CUT
from rlzoo_plus.envs.monitor import episode_numbers, mean_of_episodes
from rlzoo_plus.envs.seeding import generators_kept
from rlzoo_plus.training.metrics import EpisodeMeter, MetricMaker

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

    from rlzoo_plus.agents.policy import Policy


log = logging.getLogger(__name__)
# Steps; those of Gymnasium's own environments end after 1,600 at most.
_LONG_EPISODE = 10_000
# Return, length, success and what else was measured of an episode.
_Outcome = tuple[float, int, bool | None, dict[str, float]]


class Step(NamedTuple):
    """One step of all environments."""

    observation: Any  # what the policy saw, shape (n_envs, ...), or a dictionary of such
    action: np.ndarray  # what it did, shape (n_envs, ...)
    reward: np.ndarray  # shape (n_envs,)
    done: np.ndarray  # whether the episode ended, shape (n_envs,)
    infos: list[dict[str, Any]]  # one for each environment


# Called at each step, with which of the environments play an episode that counts, shape (n_envs,).
Watch = Callable[[Step, np.ndarray], None]


class EvaluationStopped(Exception):  # noqa: N818 - an answer, not an error
    """An evaluation was stopped because the run is to end; it can be repeated."""


@dataclass(frozen=True)
class Evaluation:
    """The episodes of one evaluation, in the order of their seeds."""

    returns: list[float]  # sum of raw rewards of each episode
    episode_lengths: list[int]  # steps of each episode
    successes: list[bool | None]  # `is_success` of its last step, None if it was not reported
    measured: list[dict[str, float]] = field(default_factory=list)  # what else is known, by name

    @property
    def about_cuts(self) -> str:
        """That `eval.max_episode_steps` has cut episodes, and what to do; empty if it has not."""
        n_cut = sum(f"end/{CUT}" in numbers for numbers in self.measured)
        if not n_cut:
            return ""
        return (
            f"{n_cut} of {len(self.returns)} episodes of the evaluation were cut after "
            f"{max(self.episode_lengths):,} steps (eval.max_episode_steps). If the environment "
            "ends no episode by itself, limit those of training, too: env.time_limit=1000"
        )

    @property
    def mean_return(self) -> float:
        """Mean over the episodes."""
        return float(np.mean(self.returns))

    def record(self, step: int) -> EvaluationRecord:
        """Return the line for `evaluations.jsonl`; nothing in it depends on the clock."""
        # Not every environment reports success.
        known = [float(success) for success in self.successes if success is not None]
        length = float(np.mean(self.episode_lengths))
        return {
            "step": step,
            "returns": self.returns,
            "mean_return": self.mean_return,
            "std_return": float(np.std(self.returns)),
            "iqm_return": iqm(self.returns),
            "success_rate": float(np.mean(known)) if known else None,
            "episode_lengths": self.episode_lengths,
            "metrics": {"mean_episode_length": length, **mean_of_episodes(self.measured)},
        }


def evaluate(
    policy: Policy,
    venv: VecEnv,
    seeds: Sequence[int],
    *,
    deterministic: bool = True,
    metrics: Mapping[str, MetricMaker] | None = None,
    is_asked_to_stop: Callable[[], bool] = lambda: False,
    watch: Watch | None = None,
) -> Evaluation:
    """Play one episode for each seed; the result does not depend on the number of environments.

    Args:
        policy: Acts on raw observations.
        venv: From `make_eval_env`.
        seeds: One for each episode.
        deterministic: Act without exploration.
        metrics: What else to measure, from `load_metrics`.
        is_asked_to_stop: Called at every step; episodes can be long, or never end.
        watch: Called at every step, e.g. to keep the episodes.

    Raises:
        EvaluationStopped: It was asked to stop.
    """
    n_envs = venv.num_envs
    for rank in range(n_envs):
        venv.env_method("set_episode_seeds", list(seeds[rank::n_envs]), indices=rank)
    left = np.array([len(seeds[rank::n_envs]) for rank in range(n_envs)])
    meters = [EpisodeMeter(metrics or {}) for _ in range(n_envs)]
    finished: list[list[_Outcome]] = [[] for _ in range(n_envs)]
    # Evaluating must not change training.
    with generators_kept():
        lengths = np.zeros(n_envs, dtype=int)
        for step in play(policy, venv, deterministic=deterministic):
            if is_asked_to_stop():
                raise EvaluationStopped
            lengths = np.where(step.done, 0, lengths + 1)
            if lengths.max() == _LONG_EPISODE:
                _warn_of_a_long_episode()
            if watch is not None:
                watch(step, left > 0)
            for rank in np.flatnonzero(left > 0).tolist() if metrics else ():
                meters[rank].step(*_row(step, rank))
            for rank in np.flatnonzero(step.done & (left > 0)).tolist():
                measured = meters[rank].end()
                # A vectorised environment may need a step between two episodes.
                if "episode" in step.infos[rank]:
                    finished[rank].append(_outcome(step.infos[rank], measured))
                    left[rank] -= 1
            if not left.any():
                break
    # Episode k was played by environment k modulo n_envs.
    ordered = [finished[k % n_envs][k // n_envs] for k in range(len(seeds))]
    return Evaluation(*map(list, zip(*ordered, strict=True)))


def play(policy: Policy, venv: VecEnv, *, deterministic: bool = True) -> Iterator[Step]:
    """Reset, act and yield every step, for as long as the caller asks for more."""
    observation: Any = venv.reset()
    state = None
    starts = np.ones(venv.num_envs, dtype=bool)
    while True:
        masks = np.stack(venv.env_method("action_masks")) if policy.maskable else None
        actions, state = policy.predict(observation, state, starts, deterministic, masks)
        following, rewards, starts, infos = venv.step(actions)
        yield Step(observation, actions, rewards, starts, infos)
        observation = following


@functools.cache
def _warn_of_a_long_episode() -> None:
    """Warn once in a process why an evaluation may never end."""
    log.warning(
        "an episode of the evaluation has taken %s steps and goes on. If the environment never "
        "ends one, limit it: env.time_limit=1000 (max_episode_steps where it is registered)",
        f"{_LONG_EPISODE:,}",
    )


def _row(step: Step, rank: int) -> tuple[Any, np.ndarray, float, dict[str, Any]]:
    seen = step.observation
    one = {k: v[rank] for k, v in seen.items()} if isinstance(seen, dict) else seen[rank]
    return one, step.action[rank], float(step.reward[rank]), step.infos[rank]


def _outcome(info: dict[str, Any], measured: Mapping[str, float]) -> _Outcome:
    episode, success = info["episode"], info.get("is_success")
    is_success = None if success is None else bool(success)
    return float(episode["r"]), int(episode["l"]), is_success, {**episode_numbers(info), **measured}


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Use one thread inside: acting alone is fastest with it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
