"""What one step of many worlds came to."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Transition(NamedTuple):
    """One step of all worlds, before any of them is reset."""

    observation: Any
    """Shape (n_worlds, ...), or a dictionary of such."""
    reward: NDArray[np.float64]
    """Shape (n_worlds,)."""
    terminated: NDArray[np.bool_]
    """Whether the task ended the episode, shape (n_worlds,)."""
    truncated: NDArray[np.bool_]
    """Whether the time limit did, shape (n_worlds,)."""
    infos: list[dict[str, Any]]
    """What a single environment's ``step`` would return as ``info``."""
