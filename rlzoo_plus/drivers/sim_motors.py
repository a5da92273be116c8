"""The motors of a simulated robot: the commands that they take, and how they stop it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlzoo_plus.drivers.driver import unit_of
from rlzoo_plus.errors import ConfigError, unknown_name
from robots.drives import (
    CombinedDrive,
    Drive,
    JoinedDrive,
    PdDrive,
    PositionDrive,
    TorqueDrive,
    VelocityDrive,
    commanding_drive,
    moves_as,
)
from robots.env import BaseRobotEnv
from robots.simulation import JointInfo


@dataclass
class _Group:
    """Motors of one drive, in its order: what commands each of them, and within which limits."""

    drive: Drive
    signals: list[str]
    lower: list[float]
    upper: list[float]

    def command(self, row: list[float]) -> None:
        """Command them for the next step."""
        if isinstance(self.drive, PositionDrive):
            # Not by inverse kinematics: these are positions already.
            PositionDrive.command(self.drive, row)
        else:
            self.drive.command(row)


class SimMotors:
    """All motors that actions drive.

    Attributes:
        described: The commands that they take, as `RobotEnd` describes them.
        safe_actions: Those that they can do: torques alone cannot hold.
    """

    def __init__(self, env: BaseRobotEnv, stuck: Sequence[str]) -> None:
        """Find the motors of a robot.

        Raises:
            ConfigError: It has a drive of its own, or no such motors.
        """
        self._simulation = env.simulation
        self._groups = [_group_of(drive) for drive in _parts_of(env.robot.drive)]
        self._places: list[list[int]] = []  # In its signal, of each motor of each group
        found: dict[str, list[tuple[JointInfo, float, float]]] = {}
        for group in self._groups:
            places = []
            limits = zip(group.drive.motors.joints, group.lower, group.upper, strict=True)
            for signal, (joint, lower, upper) in zip(group.signals, limits, strict=True):
                row = found.setdefault(signal, [])
                places.append(len(row))
                row.append((joint, lower, upper))
            self._places.append(places)
        self.described = {name: _described(name, rows) for name, rows in found.items()}
        is_torque = "joint_torque" in self.described
        self.safe_actions = ("stop",) if is_torque else ("hold", "damp", "stop")
        names = [j.name for group in self._groups for j in group.drive.motors.joints]
        for name in stuck:
            if name not in names:
                raise ConfigError(unknown_name("motor in stuck", name, names))
        self._stuck = set(stuck)
        self._rows: list[list[float]] | None = None
        self._action = self.safe_actions[0]
        self._at: list[list[float]] = []  # Where it was stopped, once that is read
        self._start: list[list[float]] = []

    def start(self, readings: list[float]) -> None:
        """Be where an episode starts, and do the first safe action there."""
        self._at = self._start = self._positions(readings)
        self._rows, self._action = None, self.safe_actions[0]
        self._switch(on=True)

    def follow(self, commands: Mapping[str, Any]) -> None:
        """Follow commands, the arrays of `described`, from the next step on."""
        if self._rows is None:
            self._switch(on=True)
        self._rows = [
            [
                float(commands[signal][place])
                for signal, place in zip(group.signals, row, strict=True)
            ]
            for group, row in zip(self._groups, self._places, strict=True)
        ]

    def stop(self, action: str) -> None:
        """Do a safe action from the next step on."""
        is_new = self._rows is not None or action != self._action
        self._rows, self._action = None, action
        if is_new:
            self._at = []
        self._switch(on=action != "stop")

    def advance(self, readings: list[float]) -> None:
        """Command the motors and advance the world by one step.

        Args:
            readings: What the sensors read before it.
        """
        present = self._positions(readings)
        if not self._at:
            self._at = present
        rows = self._rows or self._safe_rows(present)
        for number, group in enumerate(self._groups):
            row = rows[number]
            if self._stuck:
                row = self._with_stuck(group, row, self._start[number])
            if isinstance(group.drive, PdDrive):
                # It steps the world itself, and shares it with no other.
                group.drive.advance(row)
                return
            group.command(row)
        self._simulation.step()

    def _safe_rows(self, present: list[list[float]]) -> list[list[float]]:
        """Return positions to hold, or, to damp, those that are reached anyway; else zeros."""
        goals = self._at if self._action == "hold" else present
        return [
            [
                there if signal == "joint_position" else 0.0
                for signal, there in zip(group.signals, at, strict=True)
            ]
            for group, at in zip(self._groups, goals, strict=True)
        ]

    def _with_stuck(self, group: _Group, row: list[float], at: list[float]) -> list[float]:
        return [
            value
            if joint.name not in self._stuck
            else (there if signal == "joint_position" else 0.0)
            for joint, signal, value, there in zip(
                group.drive.motors.joints, group.signals, row, at, strict=True
            )
        ]

    def _positions(self, readings: list[float]) -> list[list[float]]:
        return [
            [readings[column] for column in group.drive.motors.read_columns]
            for group in self._groups
        ]

    def _switch(self, *, on: bool) -> None:
        for group in self._groups:
            motors = group.drive.motors
            if on:
                group.drive.set_strength(motors.strength)
            else:
                motors.forces = [0.0] * len(motors.joints)


def _parts_of(drive: Drive) -> list[Drive]:
    """Return the drives that command the motors; others only change actions."""
    found = commanding_drive(drive)
    if isinstance(found, JoinedDrive) and moves_as(found, JoinedDrive):
        return [part for one in found.drives for part in _parts_of(one)]
    return [found]


def _group_of(drive: Drive) -> _Group:
    """Return what commands the motors of a drive, and their limits, which they keep."""
    motors = drive.motors
    reach = np.abs(motors.scale[: len(motors.joints)])
    if moves_as(drive, CombinedDrive):
        assert isinstance(drive, CombinedDrive)
        held = np.isin(np.arange(len(motors.joints)), drive.positioned)
        speed = np.minimum(reach, motors.fastest)
        names = ["joint_position" if one else "joint_velocity" for one in held]
        lower, upper = np.where(held, motors.lower, -speed), np.where(held, motors.upper, speed)
    elif moves_as(drive, VelocityDrive):
        upper = np.minimum(reach, motors.fastest)
        names, lower = ["joint_velocity"] * len(motors.joints), -upper
    elif moves_as(drive, TorqueDrive):
        names, lower, upper = ["joint_torque"] * len(motors.joints), -reach, reach
    elif isinstance(drive, PositionDrive) and type(drive).__module__ == PositionDrive.__module__:
        names = ["joint_position"] * len(motors.joints)
        lower, upper = motors.lower, motors.upper
    else:
        raise ConfigError(
            f"{type(drive).__name__} is a drive of its own, and a driver commands joints. Use one "
            "of the action modes of `robots`."
        )
    return _Group(drive, names, lower.tolist(), upper.tolist())


def _described(name: str, rows: list[tuple[JointInfo, float, float]]) -> dict[str, Any]:
    joints = [joint for joint, _, _ in rows]
    return {
        "names": [joint.name for joint in joints],
        "unit": unit_of(name, [joint.slides for joint in joints]),
        "lower": [lower for _, lower, _ in rows],
        "upper": [upper for _, _, upper in rows],
    }
