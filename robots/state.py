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
from robots.engines import BULLET

if TYPE_CHECKING:
    from robots.conditions import Conditions
    from robots.randomization import Randomizer
    from robots.sensors import State
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
    state: State
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

        The state is the generator at the start of the episode and the actions since, and the
        physics of an engine that gives it, so that no action has to be replayed. Bullet keeps
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
            **self._of_engine(),
        }

    def _of_engine(self) -> dict[str, Any]:
        """Return what the state of an engine other than Bullet has in addition."""
        simulation = self.world.simulation
        if simulation.engine == BULLET:
            return {}
        found: dict[str, Any] = {"engine": simulation.engine}
        physics = simulation.exact_state()
        if physics is not None and self.episode.start is not None:
            found["physics"] = np.array(physics, np.float64)
            found["running"] = {
                "num_steps": self.episode.num_steps,
                "terms": dict(self.episode.terms),
                "memory": _numbers(self.state.memory),
                "conditions": {} if self.conditions is None else self.conditions.progress(),
            }
        return found

    def _continue(self, parts: Mapping[str, Any]) -> None:
        """Go on, in an episode that has just begun, where the state of an engine was given."""
        running, sensors = parts["running"], self.world.sensors
        self.world.simulation.load_exact_state(parts["physics"])
        n_exact = 2 * len(sensors.joint_indices)
        self.readings = parts["readings"]
        if sensors.read()[:n_exact] != self.readings[:n_exact]:
            raise _differs(self, "The joints")
        try:
            memory = like(self.state.memory, running["memory"])
            if self.conditions is not None:
                self.conditions.resume(running["conditions"])
        except (KeyError, ValueError) as error:
            raise _differs(self, "The memory") from error
        self.state = sensors.state(self.readings, memory, self.world.image())
        self.episode.actions = [np.asarray(action).tolist() for action in parts["actions"]]
        self.episode.num_steps = running["num_steps"]
        self.episode.terms = dict(running["terms"])

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
            if "running" in parts:
                self._continue(parts)
            else:
                for action in parts["actions"]:
                    self.step(action)
                if self.readings != parts["readings"]:
                    raise _differs(self, f"After {len(parts['actions'])} steps the sensors")
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
    engine = env.simulation.engine
    saved = state.get("engine", BULLET) if isinstance(state, Mapping) else engine
    if saved != engine:
        raise ValueError(
            f"The state is of engine={saved!r}, and this environment has engine={engine!r}: an "
            "episode does not go on in another one. Set the engine, or begin a new episode."
        )
    named = () if engine == BULLET else ("engine",)
    physics = env.simulation.exact_state() if named else None
    has_begun = isinstance(state, Mapping) and state.get("start") is not None
    running = ("physics", "running") if physics is not None and has_begun else ()
    parts = _read_entries("state", state, (*_KEYS, *further, *named, *running))
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
    if running:
        found["physics"] = _read_array("physics", parts["physics"], 1)
        if physics is not None and found["physics"].shape != physics.shape:
            raise _wrong(f"physics of {len(found['physics'])} numbers must be of {len(physics)}.")
        found["running"] = _read_running(env, parts["running"])
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


def _read_running(env: Any, value: object) -> dict[str, Any]:
    parts = _read_entries("running", value, ("num_steps", "terms", "memory", "conditions"))
    terms = _read_entries("running.terms", parts["terms"], env.term_names)
    found: dict[str, Any] = {
        "num_steps": _read_whole("running.num_steps", parts["num_steps"], 0),
        "terms": {n: read_number(f"running.terms.{n}", x, -np.inf) for n, x in terms.items()},
    }
    for name in ("memory", "conditions"):
        if not isinstance(parts[name], Mapping):
            raise _wrong(f"running.{name}={parts[name]!r} must be a mapping.")
        found[name] = {
            key: _read_array(f"running.{name}.{key}", one) for key, one in parts[name].items()
        }
    return found


def _numbers(values: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    return {name: np.array(value, np.float64) for name, value in values.items()}


def like(own: Mapping[str, Any], saved: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return saved numbers as the entries of a mapping that has them now, in kind and shape.

    Raises:
        KeyError: If one is missing.
        ValueError: If one has another shape.
    """
    found: dict[str, Any] = {}
    for name, value in own.items():
        kept = saved[name].reshape(np.shape(value)).astype(np.asarray(value).dtype)
        found[name] = kept if isinstance(value, np.ndarray) else kept.item()
    return found


def _differs(env: Any, what: str) -> InexactStateError:
    return InexactStateError(
        f"{what} of {type(env).__name__} read otherwise than when its state was saved. Use the "
        "same arguments, library versions and kind of processor."
    )


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


def _read_array(where: str, value: object, ndim: int | None = None) -> NDArray[np.float64]:
    """Return an array of finite numbers, with so many dimensions if that is given."""
    try:
        array = np.array(value)
    except ValueError:  # Lists of unequal length.
        array = np.array(None)
    # Other types would be parsed from text.
    is_numeric = array.dtype in (np.float64, np.int64)
    if not is_numeric or ndim not in (None, array.ndim) or not np.isfinite(array).all():
        many = "" if ndim is None else f" with {ndim} dimensions"
        raise _wrong(f"{where}={value!r} must be finite numbers{many}.")
    return array.astype(np.float64)
