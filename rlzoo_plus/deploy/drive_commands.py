"""What a robot's drive makes of an action, where it is affine: commands by joint, in units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from robots.drives import (
    CombinedDrive,
    DeltaPositionDrive,
    Drive,
    JoinedDrive,
    MixedDrive,
    PdDrive,
    PositionDrive,
    TorqueDrive,
    VelocityDrive,
)
from robots.sensors import JOINT_UNITS
from robots.simulation import JointInfo

Floats = NDArray[np.float64]


class NotAffineError(Exception):
    """A drive's commands depend on more than the action; the text names what on."""


@dataclass(frozen=True)
class Affine:
    """Commands: clip(centre + scale * clip(shares @ action, -1, 1), lower, upper).

    Where `relative` is 1, the present position is added to the centre. A joint that is as fast as
    `fastest` gets no torque that would make it faster.
    """

    joints: list[JointInfo]
    kinds: list[str]  # Of the command of each joint: joint_position, joint_velocity, joint_torque
    shares: Floats  # Shape (n_joints, n_actions)
    scale: Floats  # Meaning of a share of 1, in units
    centre: Floats
    lower: Floats
    upper: Floats
    relative: Floats
    fastest: Floats

    def signals(self) -> dict[str, dict[str, Any]]:
        """Return names, unit and limits of the commands, by their kind."""
        found = {}
        for kind in dict.fromkeys(self.kinds):
            columns = [n for n, own in enumerate(self.kinds) if own == kind]
            joints = [self.joints[n] for n in columns]
            units = [JOINT_UNITS[kind][joint.slides] for joint in joints]
            reach = np.where(self.relative > 0.0, np.inf, np.abs(self.scale))
            found[kind] = {
                "names": [joint.name for joint in joints],
                "unit": units[0] if len(set(units)) == 1 else ",".join(units),
                "lower": np.maximum(self.lower, self.centre - reach)[columns].tolist(),
                "upper": np.minimum(self.upper, self.centre + reach)[columns].tolist(),
            }
        return found


def affine_commands(drive: Drive, *, with_state: bool = False) -> Affine:
    """Return what a drive commands.

    Args:
        drive: The drive.
        with_state: Also of a drive that depends on positions or velocities of its own joints.

    Raises:
        NotAffineError: It depends on more than the action.
    """
    kind, motors = type(drive), drive.motors
    zeros, fastest = np.zeros(len(motors.joints)), np.array(motors.fastest)
    relative, stalls_at = zeros, zeros + np.inf
    if isinstance(drive, MixedDrive) and kind is MixedDrive:
        return replace(affine_commands(drive.wrapped, with_state=with_state), shares=drive.shares.T)
    if isinstance(drive, JoinedDrive) and kind is JoinedDrive:
        return _joined([affine_commands(part, with_state=with_state) for part in drive.drives])
    kinds = ["joint_position"] * len(motors.joints)
    centre, lower, upper = motors.centre, motors.lower, motors.upper
    if kind is TorqueDrive:
        if motors.max_velocity is not None and not with_state:
            raise NotAffineError("TorqueDrive with max_velocity depends on the joints' velocities")
        stalls_at = fastest
        kinds = ["joint_torque"] * len(kinds)
        centre, lower, upper = zeros, zeros - np.inf, zeros + np.inf
    elif kind is VelocityDrive:
        kinds = ["joint_velocity"] * len(kinds)
        centre, lower, upper = zeros, -fastest, fastest
    elif isinstance(drive, CombinedDrive) and kind is CombinedDrive:
        turning = set(drive.turning)
        kinds = ["joint_velocity" if n in turning else one for n, one in enumerate(kinds)]
        centre, lower, upper = drive.centre, drive.lower, drive.upper
    elif kind is DeltaPositionDrive and with_state:
        centre, relative = zeros, zeros + 1.0
    elif kind not in (PositionDrive, PdDrive):
        raise NotAffineError(f"{kind.__name__} depends on more than the action")
    own = np.eye(len(kinds))
    limits = (lower, upper, relative, stalls_at)
    return Affine(motors.joints, kinds, own, motors.scale, centre, *limits)


def _joined(parts: list[Affine]) -> Affine:
    """Return commands side by side, each of its own entries of the action."""
    widths = [part.shares.shape for part in parts]
    shares = np.zeros(np.sum(widths, axis=0))
    row = column = 0
    for part, (height, width) in zip(parts, widths, strict=True):
        shares[row : row + height, column : column + width] = part.shares
        row, column = row + height, column + width
    joints = [joint for part in parts for joint in part.joints]
    kinds = [kind for part in parts for kind in part.kinds]
    names = ("scale", "centre", "lower", "upper", "relative", "fastest")
    rest = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    return Affine(joints, kinds, shares, *rest)


class Commands(nn.Module):
    """The same in a graph, with a limit on how fast actions change."""

    def __init__(self, commands: Affine, choices: Floats | None, max_rate: float | None) -> None:
        """Take over commands.

        Args:
            commands: What an action commands.
            choices: The actions that a number chooses among, or None.
            max_rate: Greatest change of an entry of the action in a step, or None.
        """
        super().__init__()
        self.max_rate, self.kinds = max_rate, commands.kinds
        self.n_actions = commands.shares.shape[1]
        for name in ("shares", "scale", "centre", "lower", "upper"):
            self.register_buffer(name, torch.as_tensor(getattr(commands, name)))
        self.choices = None if choices is None else nn.Buffer(torch.as_tensor(choices))

    def forward(self, action: Tensor, arrived: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """Return the commands of each kind, shape (1, n), and the action that arrives."""
        if self.choices is not None:
            action = self.choices[action.reshape(-1)]
        action = torch.clamp(action.double(), -1.0, 1.0)
        if arrived is not None and self.max_rate is not None:
            change = torch.clamp(action - arrived, -self.max_rate, self.max_rate)
            action = arrived + change
        own: Any = self
        mixed = torch.clamp(action @ own.shares.T, -1.0, 1.0)
        targets = own.centre + own.scale * mixed
        targets = torch.minimum(torch.maximum(targets, own.lower), own.upper).float()
        columns = [
            [n for n, kind in enumerate(self.kinds) if kind == one]
            for one in dict.fromkeys(self.kinds)
        ]
        return [targets[:, chosen] for chosen in columns], action
