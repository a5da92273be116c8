"""Plays a saved episode again, and compares every step with what was saved."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.entries import as_parts, one_of
from rlzoo_plus.policies.episode import Episode, digest_of
from rlzoo_plus.policies.recorder import end_of, terms_of

_LONGEST_SHOWN = 120


@dataclass(frozen=True)
class Difference:
    """The first thing in which an episode differs from the saved one."""

    step: int  # Its number, from 1
    # `reward`, `reward term NAME`, `the observation after it`, `the end` or `last observation`,
    # with the entry; at step 0 `the first observation`
    what: str
    expected: Any  # As saved
    got: Any  # As played now

    def __str__(self) -> str:
        expected, got = (printable(v, _LONGEST_SHOWN) for v in (self.expected, self.got))
        return f"step {self.step}: {printable(self.what)} was {expected} and is {got}"

    def data(self) -> dict[str, Any]:
        """Return it for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class PlayedStep:
    """One step of a replay."""

    observation: Any  # What came before the action, of one environment
    following: Any  # What it led to
    action: np.ndarray  # The saved action
    reward: Any  # As played now
    terms: dict[str, float]  # Its terms
    end: str | None  # Why the episode ended with this step, None if it goes on


def play_again(episode: Episode, venv: VecEnv) -> Generator[PlayedStep, None, None]:
    """Play the actions of an episode from its seed; stops where the episode ends now.

    Raises:
        ConfigError: Its actions are none of this environment.
    """
    _check_actions(episode, venv)
    venv.env_method("set_episode_seeds", [episode.seed])
    observation = venv.reset()
    for action in episode.actions:
        following, rewards, dones, infos = venv.step(np.array(action)[None])
        info, end, last = infos[0], None, one_of(following, 0)
        if dones[0]:
            end, last = end_of(info), info["terminal_observation"]
        yield PlayedStep(one_of(observation, 0), last, action, rewards[0], terms_of(info), end)
        if dones[0]:
            return
        observation = following


def replay(
    episode: Episode, venv: VecEnv, watch: Callable[[PlayedStep], None] | None = None
) -> Difference | None:
    """Play an episode again; return the first difference, None if it is exactly the same.

    Raises:
        ConfigError: Its actions are none of this environment.
    """
    number = 0
    for number, step in enumerate(play_again(episode, venv), start=1):
        if watch is not None:
            watch(step)
        if found := _compare(episode, number, step):
            return found
    if number < episode.n_steps:
        return Difference(number, "the end", f"after step {episode.n_steps}", "here")
    return None


def _check_actions(episode: Episode, venv: VecEnv) -> None:
    """Refuse actions that are none of an environment: a file can hold anything."""
    space, actions = venv.action_space, episode.actions
    fits = actions.shape[1:] == (space.shape or ()) and actions.dtype == space.dtype
    if fits and isinstance(space, spaces.Box):
        fits = bool(np.isfinite(actions).all())
    elif fits:
        fits = all(space.contains(action) for action in actions)
    if not fits:
        raise ConfigError(
            f"the episode's actions, {actions.dtype} of shape {actions.shape[1:]}, are none of the "
            f"environment's {printable(space)}. Name the run that played it with --run."
        )


def _compare(episode: Episode, number: int, step: PlayedStep) -> Difference | None:
    at, is_last = number - 1, number == episode.n_steps
    if number == 1 and int(episode.digests[0]) != digest_of(step.observation):
        return _digests(0, "the first observation", episode.digests[0], step.observation)
    if not _same_entries(episode.rewards[at], step.reward):
        return Difference(number, "reward", float(episode.rewards[at]), float(step.reward))
    for name in {**episode.terms, **step.terms}:
        expected = episode.terms[name][at] if name in episode.terms else np.nan
        got = step.terms.get(name, np.nan)
        if not _same_entries(expected, got):
            return Difference(number, f"reward term {name}", float(expected), float(got))
    if (step.end is not None) != is_last or (is_last and step.end != episode.end_reason):
        expected = episode.end_reason if is_last else "not the end"
        return Difference(number, "the end", expected, step.end or "not the end")
    if is_last:
        return _observation_difference(episode, number, step.following)
    if int(episode.digests[number]) != digest_of(step.following):
        return _digests(number, "the observation after it", episode.digests[number], step.following)
    return None


def _digests(number: int, what: str, expected: Any, got: Any) -> Difference:
    """Return a difference of observations of which only a hash was saved."""
    return Difference(number, what, f"of hash {int(expected):016x}", f"{digest_of(got):016x}")


def _observation_difference(episode: Episode, number: int, got: Any) -> Difference | None:
    left, right = as_parts(episode.last_observation), as_parts(got)
    for key in {**left, **right}:
        name, before, now = f"last observation {key}".rstrip(), left.get(key), right.get(key)
        if before is None or now is None or np.shape(before) != np.shape(now):
            return Difference(number, name, _shape(before), _shape(now))
        differs = np.atleast_1d(~_same_entries(before, now))
        if differs.any():
            index = tuple(int(i) for i in np.argwhere(differs)[0])
            values = (np.atleast_1d(part)[index].item() for part in (before, now))
            return Difference(number, f"{name}{list(index)}", *values)
    return None


def _shape(value: Any) -> str:
    return "missing" if value is None else f"of shape {np.shape(value)}"


def _same_entries(left: Any, right: Any) -> Any:
    a, b = np.asarray(left), np.asarray(right)
    return (a == b) | ((a != a) & (b != b))
