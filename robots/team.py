"""Several robots in one world: their drives and their sensors as one."""

from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from robots.components import Floats
from robots.drives import Drive, PdDrive
from robots.sensor_state import NOTHING, Memory, State
from robots.sensors import Sensors


class TeamDrive(Drive):
    """Shares an action out among robots: its first entries drive the first robot, and so on."""

    def __init__(self, drives: list[Drive]) -> None:
        """Join drives of one world.

        Args:
            drives: One for each robot.

        Raises:
            ValueError: If one of them needs the physics steps for itself.
        """
        super().__init__(drives[0].motors)
        if any(isinstance(drive, PdDrive) for drive in drives):
            raise ValueError(
                "action_mode=pd cannot share a world: its controller acts within a step. "
                "Use action_mode=position."
            )
        self._drives = drives
        self._actions = _spans([drive.n_actions for drive in drives])
        self._targets = _spans([drive.n_targets for drive in drives])
        self.n_actions = self._actions[-1].stop

    @property
    def n_targets(self) -> int:
        """Return the length of a row of targets."""
        stop: int = self._targets[-1].stop
        return stop

    def set_strength(self, strength: float) -> None:
        """Set the factor on what the motors of all robots can apply."""
        self.strength = strength
        for drive in self._drives:
            drive.set_strength(strength)

    def targets(self, action: Floats, state: State) -> Floats:
        """Return what an action commands, side by side, shape (..., n_targets)."""
        states = (state, *state.partners)
        parts = [
            drive.targets(action[..., span], own)
            for drive, span, own in zip(self._drives, self._actions, states, strict=True)
        ]
        return np.concatenate(parts, axis=-1)

    def command(self, targets: list[float]) -> None:
        """Tell the motors of all robots what to do in the next step."""
        for drive, span in zip(self._drives, self._targets, strict=True):
            drive.command(targets[span])


class TeamSensors:
    """Reads the robots of one world in turn, in one row; objects are read with the first.

    Attributes:
        members: The sensors of each robot.
    """

    def __init__(self, members: list[Sensors]) -> None:
        self.members = members
        self._spans = _spans([member.n_numbers for member in members])

    def read(self) -> list[float]:
        """Return one row of numbers of this world."""
        return [number for member in self.members for number in member.read()]

    def read_at_start(self) -> list[float]:
        """Return the same after a reset."""
        return [number for member in self.members for number in member.read_at_start()]

    def state(
        self, rows: Floats | list[float], memory: Memory = NOTHING, image: Any = None
    ) -> State:
        """Return the state that rows of numbers stand for, the further robots as ``partners``."""
        rows = np.asarray(rows)
        first, *others = zip(self.members, self._spans, strict=True)
        partners = tuple(member.state(rows[..., span]) for member, span in others)
        return first[0].state(rows[..., first[1]], memory, image)._replace(partners=partners)


def _spans(widths: list[int]) -> list[slice]:
    """Return the columns of parts of these widths that lie side by side."""
    return [slice(*ends) for ends in pairwise([0, *accumulate(widths)])]
