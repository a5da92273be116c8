"""The names of the entries of an observation, and the entries in that order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

if TYPE_CHECKING:
    from stable_baselines3.common.vec_env import VecEnv

# Larger observations are pictures and the like.
MOST_NAMED = 1000
_CARTPOLE = ("cart position", "cart velocity", "pole angle", "pole angular velocity")
_CAR = ("position", "velocity")
# Of Gymnasium's environments, without versions, which do not name them.
_KNOWN = {
    "CartPole": _CARTPOLE,
    "Pendulum": ("cos angle", "sin angle", "angular velocity"),
    "MountainCar": _CAR,
    "MountainCarContinuous": _CAR,
    "Acrobot": (
        *("cos angle 1", "sin angle 1", "cos angle 2", "sin angle 2"),
        *("angular velocity 1", "angular velocity 2"),
    ),
}


def entry_names(venv: VecEnv) -> list[str] | None:
    """Return the name of each entry of the observations; None where they are pictures.

    An environment names them itself with an attribute `observation_names`, as robots of ours do:
    a sequence as long as its flat observation. Frames of a stack, the oldest first, say how many
    steps ago they were. All others are numbered.
    """
    space = venv.observation_space
    if isinstance(space, spaces.Dict):
        own = _own_names(venv)
        names: list[str] = []
        for key, part in space.spaces.items():
            size = _size(part)
            if size > MOST_NAMED:
                return None
            is_ours = key == "observation" and len(own) == size
            names += own if is_ours else _numbered(key, size)
        return names
    size = _size(space)
    if size > MOST_NAMED:
        return None
    own = _own_names(venv)
    if not own or size % len(own):
        return _numbered("observation", size)
    ages = range(size // len(own) - 1, -1, -1)
    return [f"{name} ({age} steps ago)" if age else name for age in ages for name in own]


def flat_entries(observation: Any) -> np.ndarray:
    """Return the entries of one observation in the order of their names, as float64."""
    parts = list(observation.values()) if isinstance(observation, dict) else [observation]
    return np.concatenate([np.ravel(np.asarray(part)).astype(np.float64) for part in parts])


def _own_names(venv: VecEnv) -> list[str]:
    for read in (lambda: venv.get_attr("observation_names")[0], lambda: _known_names(venv)):
        try:
            found = read()
        # Not every vectorised environment has get_attr.
        except (AttributeError, NotImplementedError, IndexError):
            continue
        if isinstance(found, (list, tuple)) and all(isinstance(name, str) for name in found):
            return list(found)
    return []


def _known_names(venv: VecEnv) -> tuple[str, ...]:
    spec = venv.get_attr("spec")[0]
    return _KNOWN.get("" if spec is None else spec.name, ())


def _size(space: spaces.Space) -> int:
    return int(np.prod(space.shape or (1,)))


def _numbered(name: str, size: int) -> list[str]:
    return [name] if size == 1 else [f"{name}[{index}]" for index in range(size)]
