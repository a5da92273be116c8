"""The exact state of an environment: its running episode as plain data, replayed on loading.

The readers raise a ValueError that names the part, the rule and the fix, and change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

if TYPE_CHECKING:
    from robots.conditions import Conditions
    from robots.env import BaseRobotEnv, Episode
    from robots.world import World


_FIX = "Load what state_dict returned for an environment made with the same arguments."


_KEYS = ("env", "step_s", "start", "actions", "readings", "np_random", "np_random_seed")


@dataclass(frozen=True)
class StoredEpisode:
    """A state that was found to be in order.

    Attributes:
        start: Generator at the start of the episode; None before the first reset.
        actions: The actions since.
        readings: What the sensors read after them.
        np_random: State of the generator now.
        np_random_seed: Its seed.
        progress: Where randomization stood, if there is any.
    """

    start: dict[str, Any] | None
    actions: list[Any]
    readings: list[float]
    np_random: dict[str, Any]
    np_random_seed: int
    progress: dict[str, Any]


class InexactStateError(RuntimeError):
    """The state of an environment cannot be given exactly; replay the episode's actions instead."""


def overridden_alone(kind: type, names: Collection[str], companion: str) -> str | None:
    """Return the first of some methods that a class overrides without overriding a companion.

    Args:
        kind: Class to look at.
        names: Names of the methods.
        companion: Name of the method that should be overridden with them.
    """
    owner = next(base for base in kind.__mro__ if companion in vars(base))
    changed = (name for name in names if getattr(kind, name) is not getattr(owner, name))
    return next(changed, None)


def read_entries(where: str, value: object, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a mapping that has exactly these keys.

    Args:
        where: Name of the part, for the message.
        value: What should be such a mapping.
        keys: Keys it must have.

    Raises:
        ValueError: If it is no mapping, lacks a key or has another one.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{where}={value!r} must be a mapping. {_FIX}")
    missing = [key for key in keys if key not in value]
    unknown = [key for key in value if key not in keys]
    if missing or unknown:
        raise ValueError(
            f"{where} lacks {missing} and has unknown {unknown}: its keys must be {list(keys)}. "
            f"{_FIX}"
        )
    return value


def read_same(where: str, value: object, own: object) -> None:
    """Check a part that identifies the environment of the state.

    Raises:
        ValueError: If the value differs from this environment's own.
    """
    if type(value) is not type(own) or value != own:
        raise ValueError(f"{where}={value!r} differs from this environment's {own!r}. {_FIX}")


def read_whole(where: str, value: object, at_least: int) -> int:
    """Return a whole number that is not too low.

    Raises:
        ValueError: If it is anything else.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise ValueError(f"{where}={value!r} must be a whole number of at least {at_least}. {_FIX}")
    return int(value)


def read_bit_generator_state(where: str, value: object, own: np.random.Generator) -> dict[str, Any]:
    """Return a state that a generator will accept; the generator itself stays as it is.

    Raises:
        ValueError: If the state is of another kind of generator, or incomplete.
    """
    kind = type(own.bit_generator)
    trial = kind(0)
    try:
        trial.state = cast(Mapping[str, Any], value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ValueError(
            f"{where}={value!r} must be a state of {kind.__name__} ({error}). {_FIX}"
        ) from error
    return dict(trial.state)


def read_episode(env: BaseRobotEnv, state: object) -> StoredEpisode:
    """Check a state of an environment; nothing is changed.

    Args:
        env: The environment that should take it over.
        state: What its ``state_dict`` may have returned.

    Raises:
        ValueError: If it is of another environment, or not in order.
    """
    conditions = env.conditions
    further = () if conditions is None else tuple(conditions.progress())
    parts = read_entries("state", state, (*_KEYS, *further))
    read_same("env", parts["env"], type(env).__name__)
    read_same("step_s", parts["step_s"], env.simulation.step_s)
    start = parts["start"]
    if start is not None:
        start = read_entries("start", start, ("np_random", "np_random_seed"))
        start = {
            "np_random": read_bit_generator_state(
                "start.np_random", start["np_random"], env.np_random
            ),
            "np_random_seed": read_whole("start.np_random_seed", start["np_random_seed"], -1),
        }
    return StoredEpisode(
        start=start,
        actions=_read_actions(env.action_space, parts["actions"], env.max_episode_steps),
        readings=_read_readings(parts["readings"], len(env.readings)),
        np_random=read_bit_generator_state("np_random", parts["np_random"], env.np_random),
        np_random_seed=read_whole("np_random_seed", parts["np_random_seed"], at_least=-1),
        progress={} if conditions is None else conditions.read_progress(parts),
    )


def _read_actions(space: spaces.Space[Any], value: object, at_most: int) -> list[Any]:
    """Return actions that an environment can take."""
    if isinstance(value, list | np.ndarray) and len(value) == 0:
        return []
    shape = space.shape or ()
    actions = _read_array("actions", value, 1 + len(shape))
    if len(actions) > at_most or actions.shape[1:] != shape:
        raise ValueError(
            f"actions of shape {actions.shape} must be at most {at_most} of shape {shape}. {_FIX}"
        )
    if isinstance(space, spaces.Discrete):
        numbers = actions.astype(np.int64)
        if (numbers != actions).any() or (numbers < 0).any() or (numbers >= space.n).any():
            raise ValueError(f"actions={value!r} must be whole numbers below {space.n}. {_FIX}")
        return list(numbers)
    return list(actions)


def _read_readings(value: object, count: int) -> list[float]:
    readings = _read_array("readings", value, 1)
    if len(readings) != count:
        raise ValueError(f"readings of {len(readings)} numbers must be of {count}. {_FIX}")
    numbers: list[float] = readings.tolist()
    return numbers


def _read_array(where: str, value: object, ndim: int) -> NDArray[np.float64]:
    """Return an array of finite numbers with so many dimensions."""
    try:
        array = np.array(value)
    except ValueError:  # Lists of unequal length.
        array = np.array(None)
    # Other types would be parsed from text.
    is_numeric = array.dtype in (np.float64, np.int64)
    if not is_numeric or array.ndim != ndim or not np.isfinite(array).all():
        raise ValueError(f"{where}={value!r} must be finite numbers with {ndim} dimensions. {_FIX}")
    return array.astype(np.float64)


class ExactState(gymnasium.Env[Any, Any]):
    """Gives and takes the state of ``BaseRobotEnv``."""

    world: World
    episode: Episode
    readings: list[float]
    conditions: Conditions | None

    def begin(self) -> None:
        """Start an episode that the environment's generator draws."""
        raise NotImplementedError

    @property
    def exact_state(self) -> bool:
        """Whether ``state_dict`` gives the state.

        False for a subclass that overrides ``step`` or ``reset`` without ``state_dict``, since it
        may remember more.
        """
        return overridden_alone(type(self), ("reset", "step"), "state_dict") is None

    def state_dict(self) -> dict[str, Any]:
        """Return the exact state between two steps, as plain data that shares nothing with it.

        The state is the generator at the start of the episode and the actions since. Bullet keeps
        contacts, and the impulses that start its next solution of them, where Python cannot set
        them, and hands out the pose of a free base rounded: only playing the episode again brings
        all of it back bit for bit.

        Not part of it: the arguments, the generators of the two spaces, and whatever a wrapper
        keeps.

        Returns:
            Nested dictionaries of strings, numbers, lists and float64 arrays.

        Raises:
            InexactStateError: If ``exact_state`` is False.
        """
        self._require_exact_state()
        return {
            "env": type(self).__name__,
            "step_s": self.world.simulation.step_s,
            "start": None if self.episode.start is None else dict(self.episode.start),
            "actions": np.array(self.episode.actions).reshape(-1, *(self.action_space.shape or ())),
            "readings": list(self.readings),
            "np_random": self.np_random.bit_generator.state,
            "np_random_seed": self.np_random_seed,
            **({} if self.conditions is None else self.conditions.progress()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in place of a ``reset``.

        Args:
            state: From an environment made with the same arguments.

        Raises:
            InexactStateError: If ``exact_state`` is False, or the episode comes out otherwise
                here: with other arguments, libraries or processors.
            ValueError: If the state is of another environment, or not in order; the environment
                is then as it was.
        """
        self._require_exact_state()
        episode = read_episode(cast("BaseRobotEnv", self), state)
        if self.conditions is not None:
            self.conditions.go_back(episode.progress)
        if episode.start is not None:
            self.np_random.bit_generator.state = episode.start["np_random"]
            self._np_random_seed = episode.start["np_random_seed"]
            self.begin()
            for action in episode.actions:
                self.step(action)
            if self.readings != episode.readings:
                raise InexactStateError(
                    f"After {len(episode.actions)} steps the sensors of {type(self).__name__} "
                    "read otherwise than when its state was saved. Use the same arguments, "
                    "library versions and kind of processor."
                )
        if self.conditions is not None:
            self.conditions.go_on(episode.progress)
        self.np_random.bit_generator.state = episode.np_random
        self._np_random_seed = episode.np_random_seed

    def _require_exact_state(self) -> None:
        overridden = overridden_alone(type(self), ("reset", "step"), "state_dict")
        if overridden is not None:
            raise InexactStateError(
                f"The state of {type(self).__name__} cannot be given exactly: {overridden} is "
                "overridden without state_dict. Ask exact_state first, and replay the actions of "
                "the episode instead."
            )
