"""The exact state of an environment: its running episode as plain data, replayed on loading.

The readers raise a ValueError that names the part, the rule and the fix, and change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from robots.distributions import read_number

if TYPE_CHECKING:
    from robots.conditions import Conditions
    from robots.randomization import Randomizer
    from robots.world import World

_KEYS = ("env", "step_s", "start", "actions", "readings", "np_random", "np_random_seed")


class InexactStateError(RuntimeError):
    """The state of an environment cannot be given exactly; replay the episode's actions instead."""


@dataclass(slots=True)
class Episode:
    """Record of an episode since its reset.

    Attributes:
        start: State and seed of the environment's generator before it; None before the first.
        terms: Weighted terms of the reward, summed.
        actions: What ``step`` was given, as plain numbers.
        num_steps: Steps taken.
    """

    start: dict[str, Any] | None
    terms: dict[str, float]
    actions: list[Any] = field(default_factory=list)
    num_steps: int = 0


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
    def randomizer(self) -> Randomizer | None:
        """Draws what differs between episodes, None without randomization."""
        conditions = self.conditions
        return conditions.randomizer if conditions is not None and conditions.is_random else None

    @property
    def exact_state(self) -> bool:
        """Whether ``state_dict`` gives the state.

        False for a subclass that overrides ``step`` or ``reset`` without ``state_dict``, since it
        may remember more.
        """
        return self._overridden() is None

    def state_dict(self) -> dict[str, Any]:
        """Return the exact state between two steps, as plain data that shares nothing with it.

        The state is the generator at the start of the episode and the actions since. Bullet keeps
        contacts, and the impulses that start its next solution of them, where Python cannot set
        them, and returns the pose of a free base rounded: only a replay of the episode restores
        all of it bit for bit.

        Not part of it: the arguments, the generators of the two spaces, and whatever a wrapper
        keeps.

        Returns:
            Nested dictionaries of strings, numbers, lists and float64 arrays.

        Raises:
            InexactStateError: If ``exact_state`` is False.
        """
        self._require_exact_state()
        randomizer = self.randomizer
        return {
            "env": type(self).__name__,
            "step_s": self.world.simulation.step_s,
            "start": None if self.episode.start is None else dict(self.episode.start),
            "actions": np.array(self.episode.actions).reshape(-1, *(self.action_space.shape or ())),
            "readings": list(self.readings),
            "np_random": self.np_random.bit_generator.state,
            "np_random_seed": self.np_random_seed,
            **({} if randomizer is None else {"randomization": randomizer.progress()}),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state_dict`` returned, in place of a ``reset``.

        Args:
            state: From an environment made with the same arguments.

        Raises:
            InexactStateError: If ``exact_state`` is False, or the replayed episode differs: with
                other arguments, libraries or processors.
            ValueError: If the state is of another environment, or not valid; the environment
                is then as it was.
        """
        self._require_exact_state()
        parts = _read_state(self, state)
        progress, randomizer = parts.get("randomization"), self.randomizer
        if randomizer is not None and progress is not None:
            randomizer.restore(progress)
        if parts["start"] is not None:
            self.np_random.bit_generator.state = parts["start"]["np_random"]
            self._np_random_seed = parts["start"]["np_random_seed"]
            self.begin()
            for action in parts["actions"]:
                self.step(action)
            if self.readings != parts["readings"]:
                raise InexactStateError(
                    f"After {len(parts['actions'])} steps the sensors of {type(self).__name__} "
                    "read otherwise than when its state was saved. Use the same arguments, "
                    "library versions and kind of processor."
                )
        if randomizer is not None and progress is not None:
            randomizer.forced_level = progress["next_level"]
        self.np_random.bit_generator.state = parts["np_random"]
        self._np_random_seed = parts["np_random_seed"]

    def _overridden(self) -> str | None:
        """Return which of ``reset`` and ``step`` is overridden without ``state_dict``, if any."""
        kind = type(self)
        owner = next(base for base in kind.__mro__ if "state_dict" in vars(base))
        names = (n for n in ("reset", "step") if getattr(kind, n) is not getattr(owner, n))
        return next(names, None)

    def _require_exact_state(self) -> None:
        overridden = self._overridden()
        if overridden is not None:
            raise InexactStateError(
                f"The state of {type(self).__name__} cannot be given exactly: {overridden} is "
                "overridden without state_dict. Ask exact_state first, and replay the actions of "
                "the episode instead."
            )


def _read_state(env: Any, state: object) -> dict[str, Any]:
    """Return the parts of a state that ``env.state_dict`` may have returned; change nothing."""
    further = () if env.randomizer is None else ("randomization",)
    parts = _read_entries("state", state, (*_KEYS, *further))
    for name, own in (("env", type(env).__name__), ("step_s", env.simulation.step_s)):
        if type(parts[name]) is not type(own) or parts[name] != own:
            raise _wrong(f"{name}={parts[name]!r} differs from this environment's {own!r}.")
    if (start := parts["start"]) is not None:
        start = _read_generator("start", start, env.np_random)
    readings = _read_array("readings", parts["readings"], 1).tolist()
    if len(readings) != len(env.readings):
        raise _wrong(f"readings of {len(readings)} numbers must be of {len(env.readings)}.")
    found = {
        "start": start,
        "actions": _read_actions(env.action_space, parts["actions"], env.max_episode_steps),
        "readings": readings,
        **_read_generator("", parts, env.np_random),
    }
    if further:
        where, levels = "randomization", ("level", "next_level")
        drawn = _read_entries(where, parts[where], ("episodes", *levels))
        found[where] = {"episodes": _read_whole(f"{where}.episodes", drawn["episodes"], 0)}
        for name in levels:
            level = drawn[name]
            if level is not None:
                level = read_number(f"{where}.{name}", level, 0.0, 1.0)
            found[where][name] = level
    return found


def _wrong(problem: str) -> ValueError:
    return ValueError(
        f"{problem} Load what state_dict returned for an environment made with the same arguments."
    )


def _read_entries(where: str, value: object, keys: Collection[str]) -> Mapping[str, Any]:
    """Return a mapping that has exactly these keys."""
    if not isinstance(value, Mapping):
        raise _wrong(f"{where}={value!r} must be a mapping.")
    missing = [key for key in keys if key not in value]
    unknown = [key for key in value if key not in keys]
    if missing or unknown:
        raise _wrong(
            f"{where} lacks {missing} and has unknown {unknown}: its keys must be {list(keys)}."
        )
    return value


def _read_whole(where: str, value: object, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < at_least:
        raise _wrong(f"{where}={value!r} must be a whole number of at least {at_least}.")
    return int(value)


def _read_generator(
    where: str, parts: Mapping[str, Any], own: np.random.Generator
) -> dict[str, Any]:
    """Return a state that the generator will accept, and its seed; it stays as it is."""
    keys = ("np_random", "np_random_seed")
    if where:
        parts = _read_entries(where, parts, keys)
        where += "."
    value, kind = parts["np_random"], type(own.bit_generator)
    trial = kind(0)
    try:
        trial.state = cast(Mapping[str, Any], value)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise _wrong(
            f"{where}np_random={value!r} must be a state of {kind.__name__} ({error})."
        ) from error
    seed = _read_whole(f"{where}np_random_seed", parts["np_random_seed"], -1)
    return dict(zip(keys, (dict(trial.state), seed), strict=True))


def _read_actions(space: spaces.Space[Any], value: object, at_most: int) -> list[Any]:
    """Return actions that an environment can take."""
    if isinstance(value, list | np.ndarray) and len(value) == 0:
        return []
    shape = space.shape or ()
    actions = _read_array("actions", value, 1 + len(shape))
    if len(actions) > at_most or actions.shape[1:] != shape:
        raise _wrong(
            f"actions of shape {actions.shape} must be at most {at_most} of shape {shape}."
        )
    if isinstance(space, spaces.Discrete):
        numbers = actions.astype(np.int64)
        if (numbers != actions).any() or (numbers < 0).any() or (numbers >= space.n).any():
            raise _wrong(f"actions={value!r} must be whole numbers below {space.n}.")
        return list(numbers)
    return list(actions)


def _read_array(where: str, value: object, ndim: int) -> NDArray[np.float64]:
    """Return an array of finite numbers with so many dimensions."""
    try:
        array = np.array(value)
    except ValueError:  # Lists of unequal length.
        array = np.array(None)
    # Other types would be parsed from text.
    is_numeric = array.dtype in (np.float64, np.int64)
    if not is_numeric or array.ndim != ndim or not np.isfinite(array).all():
        raise _wrong(f"{where}={value!r} must be finite numbers with {ndim} dimensions.")
    return array.astype(np.float64)
