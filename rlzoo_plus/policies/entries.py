"""The entries of an observation: its parts by key, their names, and all of them in one row."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv

from rlzoo_plus.envs.spaces import parts_of

# Larger observations are pictures and the like.
_MOST_NAMED = 1000
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


def as_parts(observation: Any) -> dict[str, Any]:
    """Return observations by key; that of flat ones is empty, as in `parts_of` a space."""
    return dict(observation) if isinstance(observation, dict) else {"": observation}


def joined(parts: dict[str, Any]) -> Any:
    """Return what `as_parts` has taken apart."""
    return parts[""] if parts.keys() == {""} else parts


def stacked(rows: Sequence[Any]) -> Any:
    """Return observations as a batch."""
    return joined(
        {key: np.stack([as_parts(row)[key] for row in rows]) for key in as_parts(rows[0])}
    )


def one_of(observation: Any, rank: int) -> Any:
    """Return a copy of the observation of one environment of a batch."""
    return joined({key: np.array(part[rank]) for key, part in as_parts(observation).items()})


def entry_names(venv: VecEnv) -> list[str] | None:
    """Return the name of each entry of the observations; None where they are pictures.

    An environment names them itself with an attribute `observation_names`, as robots of ours do:
    a sequence as long as its flat observation. Frames of a stack, the oldest first, say how many
    steps ago they were. All others are numbered.
    """
    space = venv.observation_space
    sizes = {key: int(np.prod(part.shape or (1,))) for key, part in parts_of(space).items()}
    if any(size > _MOST_NAMED for size in sizes.values()):
        return None
    own = _own_names(venv)
    if isinstance(space, spaces.Dict):
        names: list[str] = []
        for key, size in sizes.items():
            is_own = key == "observation" and len(own) == size
            names += own if is_own else _numbered(key, size)
        return names
    if not own or sizes[""] % len(own):
        return _numbered("observation", sizes[""])
    ages = range(sizes[""] // len(own) - 1, -1, -1)
    return [f"{name} ({age} steps ago)" if age else name for age in ages for name in own]


def flat_entries(observation: Any) -> np.ndarray:
    """Return the entries of one observation in the order of their names, as float64."""
    parts = as_parts(observation).values()
    return np.concatenate([np.ravel(np.asarray(part)).astype(np.float64) for part in parts])


def _own_names(venv: VecEnv) -> list[str]:
    # Not every vectorised environment has get_attr.
    with contextlib.suppress(AttributeError, NotImplementedError, IndexError):
        found = venv.get_attr("observation_names")[0]
        if isinstance(found, (list, tuple)) and all(isinstance(name, str) for name in found):
            return list(found)
    with contextlib.suppress(AttributeError, NotImplementedError, IndexError):
        return list(_KNOWN.get(getattr(venv.get_attr("spec")[0], "name", ""), ()))
    return []


def _numbered(name: str, size: int) -> list[str]:
    return [name] if size == 1 else [f"{name}[{index}]" for index in range(size)]
