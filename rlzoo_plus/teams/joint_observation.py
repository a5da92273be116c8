"""What all agents of a world see, beside what each of them sees: for a critic of the team."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from rlzoo_plus.config.critics import TEAM_KEYS
from rlzoo_plus.errors import ConfigError

OWN = "observation"
TEAM, PRESENT = TEAM_KEYS


class JointObservation:
    """Observations of rows with two more entries, the same for all rows of a world.

    `team` is what its agents see, shape (n_agents, n): zeros for one that is not there, and
    `present` tells who is.

    Attributes:
        space: Space of the observation of a row.
    """

    def __init__(self, env_id: str, own: spaces.Space[Any], n_agents: int) -> None:
        """Lay out the entries.

        Raises:
            ConfigError: What an agent sees is no array of numbers.
        """
        if not isinstance(own, spaces.Box):
            raise ConfigError(
                f"env.id={env_id}: a critic of all agents needs observations that are a Box, and "
                f"they are {type(own).__name__}. Flatten them, or use algo=ppo."
            )
        self._n_agents = n_agents
        low, high = (np.tile(bound.ravel(), (n_agents, 1)) for bound in (own.low, own.high))
        # Zeros stand for agents that are not there.
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        team = spaces.Box(low, high, dtype=own.dtype.type)
        # No Box: a mask is not normalised.
        self.space = spaces.Dict({OWN: own, TEAM: team, PRESENT: spaces.MultiBinary(n_agents)})

    def of(self, rows: np.ndarray, there: np.ndarray) -> dict[str, np.ndarray]:
        """Return observations of all rows.

        Args:
            rows: What the agents see, shape (n_worlds * n_agents, ...).
            there: Which of them are in their world, shape (n_worlds * n_agents,).
        """
        n_agents = self._n_agents
        team = np.where(there[:, None], rows.reshape(len(rows), -1), 0).astype(rows.dtype)
        worlds = team.reshape(-1, n_agents, team.shape[1])
        masks = there.reshape(-1, n_agents).astype(np.int8)
        # The same for all agents of a world.
        return {
            OWN: rows,
            TEAM: np.repeat(worlds, n_agents, axis=0),
            PRESENT: np.repeat(masks, n_agents, axis=0),
        }

    def complete(
        self, infos: Sequence[dict[str, Any]], rows: np.ndarray, acted: np.ndarray
    ) -> None:
        """Give the last observations of episodes that ended in a step the same entries.

        Args:
            infos: Of all rows; those of ended episodes have `terminal_observation`.
            rows: What the agents see after the step.
            acted: Which of them were in their world in it.
        """
        ended = [rank for rank, info in enumerate(infos) if "terminal_observation" in info]
        if not ended:
            return
        last = rows.copy()
        for rank in ended:
            last[rank] = infos[rank]["terminal_observation"]
        joint = self.of(last, acted)
        for rank in ended:
            infos[rank]["terminal_observation"] = {k: v[rank].copy() for k, v in joint.items()}
