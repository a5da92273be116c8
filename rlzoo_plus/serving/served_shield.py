"""The shield of a served policy: commands of the joints, changed so that its limits hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.serving.request_checks import Input, Refused, number
from robots.elementary import clip
from robots.frames import Floats
from robots.shield_numbers import MOST_JOINTS, read_array, read_shield

STATE = "joint_state"
"""Name of the tensor with position and velocity of each joint, shape (n_joints, 2)."""
_KINDS = ("joint_position", "joint_velocity", "joint_torque")
# Beyond what any joint is at, in units; the projection of larger numbers might overflow.
_MOST = 1e6
Commands = dict[str, dict[str, float]]
"""What the joints are told, in units: by kind and by the name of the joint."""


class Applied:
    """What a session remembers of the actions that reached the motors."""

    def __init__(self, n_actions: int) -> None:
        self.arrived: Floats = np.zeros(n_actions)
        self.applied: Floats = self.arrived


class ServedShield:
    """What `deploy` wrote of a shield; sessions share it.

    Attributes:
        joints: Names of the joints that it watches.
        tensor: What the Open Inference Protocol sends of their state.
        promises: On what condition each limit holds.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        """Read the entry of deploy.json; a part that is wrong raises any of Python's errors."""
        self._shield = read_shield(about["limits"])
        self.joints = tuple(map(str, about["joints"]))
        self.promises, drive = dict(about["promises"]), about["drive"]
        names, kinds = list(map(str, drive["names"])), list(drive["kinds"])
        count, shares = len(names), np.array(drive["shares"], np.float64)
        self._n_actions = shares.shape[1]
        of_shield = len(self._shield.joints.force)
        if not of_shield == len(self.joints) <= count <= MOST_JOINTS or set(kinds) - {*_KINDS}:
            raise ValueError("its shield names other joints than it has")
        self._shares = read_array(drive["shares"], (count, self._n_actions))
        self._scale, self._centre, self._relative = (
            read_array(drive[name], (count,)) for name in ("scale", "centre", "relative")
        )
        self._lower, self._upper, self._fastest = (
            read_array(drive[name], (count,), endless)
            for name, endless in (("lower", -np.inf), ("upper", np.inf), ("fastest", np.inf))
        )
        choices, rate = drive["choices"], drive["max_action_rate"]
        self._choices = None
        if choices is not None:
            self._choices = read_array(choices, (len(choices), self._n_actions))
        self._max_rate = None if rate is None else read_array([rate], (1,), least=0.0)
        places = list(zip(kinds, names, strict=True))
        self.outputs = {
            kind: [name for own, name in places if own == kind] for kind in dict.fromkeys(kinds)
        }
        self._places = places
        bound = np.full((of_shield, 2), _MOST)
        self.tensor = Input(STATE, np.dtype(np.float64), bound.shape, None, -bound, bound)

    def same_as(self, other: ServedShield | None) -> bool:
        """Tell whether clients of one can go on with the other."""
        return other is not None and self._shape() == other._shape()

    def _shape(self) -> tuple[Any, ...]:
        return self.joints, self.outputs, self._n_actions

    def begin(self) -> Applied:
        """Return what a session remembers at the start of an episode."""
        return Applied(self._n_actions)

    def of_json(self, told: Any) -> Floats:
        """Return the state of the joints as clients send it: `{joint: [position, velocity]}`."""
        fix = f"Send state: {{joint: [position, velocity]}} of {printable(', '.join(self.joints))}"
        if not isinstance(told, dict):
            what = "missing" if told is None else "no JSON object"
            raise Refused("state", f"{what}, and the shield needs where the joints are", fix)
        for name in [*told, *self.joints]:
            if name not in told or name not in self.joints:
                what = "missing" if name in self.joints else "no joint of the shield"
                raise Refused(f"state.{printable(name, 100)}", what, fix)
        rows = []
        for name in self.joints:
            field, pair = f"state.{printable(name, 100)}", told[name]
            if not isinstance(pair, list) or len(pair) != 2:
                raise Refused(field, "no list of position and velocity", fix)
            rows.append([number(value, field, -_MOST, _MOST) for value in pair])
        return np.array(rows)

    def commands(
        self, memory: Applied, action: Any, state: Floats, *, is_free: bool = False
    ) -> tuple[Commands, dict[str, float]]:
        """Return what the joints are told, and what was changed of it for each limit, in units.

        Args:
            memory: Of the session.
            action: What was decided.
            state: Position and velocity of each joint, shape (n_joints, 2).
            is_free: Whether nothing is changed.

        Raises:
            FloatingPointError: A command is not finite.
        """
        position, velocity = state.T
        wanted = np.ravel(action).astype(np.float64)
        if self._choices is not None:
            wanted = self._choices[int(action)]
        arrived: Floats = clip(wanted, -1.0, 1.0)
        applied = arrived
        found: dict[str, Any] = {}
        if not is_free:
            if self._max_rate is not None:
                change = clip(arrived - memory.arrived, -self._max_rate, self._max_rate)
                arrived = memory.arrived + change
            applied, found = self._shield.limit_action(arrived, memory.applied)
        targets = self._targets(applied, position, velocity)
        if not is_free:
            targets, changes = self._shield.project_rows(targets, position, velocity)
            found |= changes
        if not np.isfinite(targets).all():
            raise FloatingPointError("a command is not finite")
        memory.arrived, memory.applied = arrived, applied
        told: Commands = {kind: {} for kind in self.outputs}
        for (kind, name), value in zip(self._places, targets.tolist(), strict=True):
            told[kind][name] = value
        return told, {kind: float(change) for kind, change in found.items() if change > 0.0}

    def _targets(self, applied: Floats, position: Floats, velocity: Floats) -> Floats:
        """Return what a drive of `robots.drives` commands, as `deploy` has written it."""
        count = len(position)
        centre = self._centre.copy()
        centre[:count] += self._relative[:count] * position
        mixed = clip(self._shares @ applied, -1.0, 1.0)
        targets = clip(centre + self._scale * mixed, self._lower, self._upper)
        top = self._fastest[:count]
        low = np.where(velocity <= -top, 0.0, -np.inf)
        targets[:count] = clip(targets[:count], low, np.where(velocity >= top, 0.0, np.inf))
        return targets
