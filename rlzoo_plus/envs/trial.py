"""What an environment returns, compared with what its spaces and Gymnasium's interface promise."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlzoo_plus.envs.infos import why_not_shared
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.registry import where_raised
from robots.quiet import native_output_hidden

OLD = (
    "Written for the old gym? https://gymnasium.farama.org/introduction/migration_guide says what "
    "to change"
)
_SEED = 20_000


class Trial:
    """Looks at every step of an environment that is tried out.

    Attributes:
        has_ended: Whether an episode ended.
    """

    def __init__(self, env: gym.Env, env_id: str, *, in_worker: bool = False) -> None:
        self._space, self._where = env.observation_space, f"env.id={env_id}"
        self._in_worker = in_worker
        self._warnings: dict[str, str] = {}
        self._taken, self.has_ended = 0, False

    @property
    def warnings(self) -> list[str]:
        """What is doubtful, each kind once."""
        return list(self._warnings.values())

    def look_at_reset(self, found: tuple[Any, Any]) -> None:
        """Check what `reset` returned.

        Raises:
            ConfigError: Nothing can be learned from it.
        """
        check_shape(found[0], self._space, self._where)
        self._look(found[0], self._space, "observation")

    def look_at_step(self, found: tuple[Any, ...]) -> None:
        """Check what `step` returned.

        Raises:
            ConfigError: Nothing can be learned from it.
        """
        self._taken += 1
        observation, reward, *ends, info = found
        for name, end in zip(("terminated", "truncated"), ends, strict=True):
            if not isinstance(end, (bool, np.bool_, int)):
                raise ConfigError(
                    f"{self._where}: {name} of its step() is {_kind_of(end)}. Return True or False."
                )
        self.has_ended = self.has_ended or any(ends)
        if not isinstance(info, dict):
            raise ConfigError(
                f"{self._where}: info of its step() is {_kind_of(info)}. Return a dictionary."
            )
        if problem := why_not_shared(info, is_sent=self._in_worker):
            raise ConfigError(f"{self._where}: its {problem}")
        if not np.isfinite(float(reward)):
            raise ConfigError(
                f"{self._where}: its reward is {float(reward)} at step {self._taken} of a trial "
                "with random actions. One such number makes all weights NaN: return finite ones."
            )
        check_shape(observation, self._space, self._where)
        self._look(observation, self._space, "observation")

    def _look(self, value: Any, space: spaces.Space[Any], name: str) -> None:
        if isinstance(space, spaces.Dict):
            for key, part in space.spaces.items():
                self._look(value[key], part, f"{name}[{key}]")
        elif isinstance(space, spaces.Box):
            self._look_at_box(np.asarray(value), space, name)
        elif isinstance(space, (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
            self._look_at_choice(np.asarray(value), space, name)

    def _look_at_box(self, value: np.ndarray, space: spaces.Box, name: str) -> None:
        if value.dtype.kind not in "biuf":
            raise ConfigError(
                f"{self._where}: its {name} is of type {value.dtype}, not of numbers. Return an "
                f"array of {space.dtype}."
            )
        if not np.isfinite(value).all():
            place = tuple(np.argwhere(~np.isfinite(value))[0].tolist())
            raise ConfigError(
                f"{self._where}: its {name} has {value[place]} at {_index(place)}, at step "
                f"{self._taken} of a trial with random actions. One such number makes all weights "
                "NaN: return finite ones."
            )
        stored = value.astype(space.dtype)
        if space.dtype.kind != "f" and not np.array_equal(stored, value):
            raise ConfigError(
                f"{self._where}: its {name} is of type {value.dtype}, and would be stored as "
                f"{space.dtype}, as its observation_space says: {value.flat[_first(stored, value)]}"
                f" becomes {stored.flat[_first(stored, value)]}. Let the space have the type of "
                "what it returns, e.g. Box(..., dtype=np.float32)."
            )
        if value.dtype != space.dtype:
            self._warnings.setdefault(
                f"type of {name}",
                f"{self._where}: its {name} is of type {value.dtype}, its observation_space of "
                f"{space.dtype}: it is converted at each step. Let them agree, e.g. with "
                f"observation.astype(np.{space.dtype}).",
            )
        outside = (value < space.low) | (value > space.high)
        if outside.any():
            place = tuple(np.argwhere(outside)[0].tolist())
            self._warnings.setdefault(
                f"range of {name}",
                f"{self._where}: its {name} is {value[place]:g} at {_index(place)}, and its "
                f"observation_space goes from {space.low[place]:g} to {space.high[place]:g} there. "
                "Give the space the bounds of what it returns, or clip that.",
            )

    def _look_at_choice(self, value: np.ndarray, space: Any, name: str) -> None:
        start = np.asarray(getattr(space, "start", 0))
        end = start + getattr(space, "nvec", getattr(space, "n", 2))
        if isinstance(space, spaces.MultiBinary):
            end = np.asarray(2)
        if value.dtype.kind not in "biu" or (value < start).any() or (value >= end).any():
            shown = str(value.tolist())[:80]
            raise ConfigError(
                f"{self._where}: its {name} is {shown}, which is not in its observation_space, "
                f"{space}. Let the space hold all that it returns."
            )


def _index(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]"


def _first(stored: np.ndarray, value: np.ndarray) -> int:
    return int(np.flatnonzero((stored != value).ravel())[0])


def check_interface(env: gym.Env, env_id: str) -> None:
    """Reset and step an environment, first without its wrappers, then with them.

    Raises:
        ConfigError: What it returns is not as Gymnasium's interface says, or it raises.
    """
    bare = env.unwrapped
    with errors_in_one_line(env_id, "reset(seed=...)"):
        found = bare.reset(seed=_SEED)
        if not (isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict)):
            raise ConfigError(
                f"env.id={env_id}: its reset() returns {_kind_of(found)}, not (observation, info). "
                f"{OLD}."
            )
    with errors_in_one_line(env_id, "step()"):
        bare.action_space.seed(_SEED)
        _check_step(bare.step(sample_action(bare)), env_id)
    with errors_in_one_line(env_id, "reset(seed=...) behind its wrappers"):
        observation, _ = env.reset(seed=_SEED)
    check_shape(observation, env.observation_space, f"env.id={env_id}")
    with errors_in_one_line(env_id, "step() behind its wrappers"):
        env.action_space.seed(_SEED)
        env.step(sample_action(env))


def sample_action(env: gym.Env) -> Any:
    """Return a random action; the first allowed one if the environment masks some."""
    try:
        masks = env.get_wrapper_attr("action_masks")()
    except AttributeError:
        return env.action_space.sample()
    return allowed_action(env.action_space, masks)


def allowed_action(space: Any, masks: Any) -> Any:
    """Return the first action of a space that masks allow."""
    if isinstance(space, spaces.Discrete):
        return np.int64(np.flatnonzero(masks)[0])
    # One mask for each part, one after the other; of yes and no for each switch.
    counts = getattr(space, "nvec", np.full(space.shape or (), 2)).ravel()
    parts = np.split(np.concatenate([*map(np.ravel, masks)]), np.cumsum(counts)[:-1])
    chosen = np.array([np.flatnonzero(part)[0] for part in parts], space.dtype)
    return chosen.reshape(space.shape or ())


@contextlib.contextmanager
def errors_in_one_line(env_id: str, call: str) -> Iterator[None]:
    """Report in one line what a user's environment raises; one of ours keeps its traceback.

    Raises:
        ConfigError: It names the line of the user's own code.
    """
    try:
        with native_output_hidden():
            yield
    except (ConfigError, RunError):
        raise
    except (Exception, SystemExit) as error:
        if env_id.startswith("robots/"):
            raise
        hint = f" {OLD}." if "unexpected keyword argument 'seed'" in str(error) else ""
        raise ConfigError(
            f"env.id={env_id}: its {call} raises {where_raised(error)}.{hint}"
        ) from error


def _check_step(returned: Any, env_id: str) -> None:
    if not isinstance(returned, tuple) or len(returned) != 5:
        raise ConfigError(
            f"env.id={env_id}: its step() returns {_kind_of(returned)}, not (observation, reward, "
            f"terminated, truncated, info). {OLD}."
        )
    try:
        float(returned[1])
    except (TypeError, ValueError):
        raise ConfigError(
            f"env.id={env_id}: the reward of its step() is {_kind_of(returned[1])}. Return a "
            "number."
        ) from None


def check_shape(observation: Any, space: spaces.Space[Any], where: str) -> None:
    """Check that an observation has the keys and shapes that its space says.

    Raises:
        ConfigError: It has others; the text begins with `where`.
    """
    if isinstance(space, spaces.Dict):
        keys = set(observation) if isinstance(observation, dict) else {_kind_of(observation)}
        if keys != set(space.spaces):
            raise ConfigError(
                f"{where}: its observation has the keys {sorted(keys)}, and its "
                f"observation_space has {sorted(space.spaces)}. Let them agree."
            )
        for key, part in space.spaces.items():
            check_shape(observation[key], part, where)
    elif space.shape is not None and np.shape(observation) != space.shape:
        raise ConfigError(
            f"{where}: its observation is {_kind_of(observation)}, and its observation_space "
            f"is of shape {space.shape}. Let them agree."
        )


def _kind_of(value: Any) -> str:
    """Return what a value is, for an error."""
    if isinstance(value, tuple):
        return f"{len(value)} values"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    return "None" if value is None else f"a {type(value).__name__}"
