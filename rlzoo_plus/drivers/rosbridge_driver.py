"""The driver of a robot that ROS controls, through the websocket of its rosbridge server."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.drivers.driver import (
    Description,
    Driver,
    DriverError,
    Reading,
    Signal,
    Values,
    check_commands,
    columns_by_name,
    unit_of,
)
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.registry import import_user_module

_INSTALL = "Install it: pip install 'rlzoo-plus[ros]'"
# Of a point of a trajectory, and of a JointState.
_FIELDS = {"joint_position": "positions", "joint_velocity": "velocities", "joint_torque": "effort"}
_SENSORS = {"joint_position": "position", "joint_velocity": "velocity", "joint_effort": "effort"}
_TYPES = {
    "trajectory": "trajectory_msgs/JointTrajectory",
    "array": "std_msgs/Float64MultiArray",
}


class RosbridgeSettings(BaseModel):
    """Where the server is, which topics it has, and what they mean."""

    model_config = ConfigDict(extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=9090, ge=1, le=65535)
    joints: list[str] = Field(min_length=1)  # That are commanded, in the order of the controller's
    sliders: list[str] = []  # Those of them that slide
    states: str = "/joint_states"  # Topic of sensor_msgs/JointState
    commands: str = "/joint_trajectory_controller/joint_trajectory"  # Topic of the commands
    message: Literal["trajectory", "array"] = "trajectory"  # JointTrajectory or Float64MultiArray
    command: Literal["joint_position", "joint_velocity", "joint_torque"] = "joint_position"
    lower: list[float] | None = None  # Of the commands, which are clipped
    upper: list[float] | None = None
    rate_hz: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 50.0
    ros: Literal[1, 2] = 2
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0  # To connect, and to read

    @model_validator(mode="after")
    def _check(self) -> RosbridgeSettings:
        for name, limits in (("lower", self.lower), ("upper", self.upper)):
            if limits is not None and len(limits) != len(self.joints):
                raise ValueError(f"{name} has {len(limits)} numbers for {len(self.joints)} joints")
        if self.message == "trajectory" and self.command == "joint_torque":
            raise ValueError("command=joint_torque needs message=array")
        return self


class RosbridgeDriver(Driver):
    """Joint states from one topic, joint commands to another.

    It has no watchdog: what the robot does when commands end is up to its controller.
    """

    Settings = RosbridgeSettings

    def __init__(self, settings: RosbridgeSettings) -> None:
        """Import roslibpy.

        Raises:
            ConfigError: It is not installed.
        """
        self._ros: Any = import_user_module("driver=rosbridge", "roslibpy", _INSTALL)
        self.settings = settings
        self._client: Any = None
        self._commands: Any = None
        self._states: Any = None
        self._described: Description | None = None
        self._newest: tuple[float, dict[str, Any]] | None = None
        self._came = threading.Event()

    @property
    def _where(self) -> str:
        return f"rosbridge at {self.settings.host}:{self.settings.port}"

    def connect(self) -> None:
        """Reach the server and wait for the first joint states."""
        if self._described is not None:
            return
        options = self.settings
        self._newest = None
        self._came.clear()
        try:
            self._client = self._ros.Ros(host=options.host, port=options.port)
            self._client.run(timeout=options.timeout_s)
        # Whatever roslibpy and the network raise.
        except Exception as error:
            self._close()
            raise DriverError(f"{self._where} cannot be reached: {one_line(error)}.") from error
        self._states = self._ros.Topic(
            self._client, options.states, "sensor_msgs/JointState", queue_length=1
        )
        self._states.subscribe(self._keep)
        self._commands = self._ros.Topic(self._client, options.commands, _TYPES[options.message])
        self._commands.advertise()
        if not self._came.wait(options.timeout_s):
            self._close()
            raise DriverError(
                f"{self._where}: nothing on {options.states} for {options.timeout_s:g} s. Set "
                "states=TOPIC."
            )
        try:
            self._described = self._describe()
        except (ConfigError, DriverError):
            self._close()
            raise

    def describe(self) -> Description:
        """Return what the joint states have, and the commands of the settings."""
        if self._described is None:
            raise DriverError(f"{self._where} is not connected. Call connect first.")
        return self._described

    def read(self) -> Reading:
        """Return the newest joint states; their time is that of their arrival."""
        described = self.describe()
        self._check_connection()
        assert self._newest is not None
        at_s, message = self._newest
        names, rows = self._rows_of(message)
        values = {}
        for name, signal in described.sensors.items():
            if name not in rows or not set(signal.names) <= set(names):
                raise DriverError(f"{self._where}: {name} is no longer in the joint states.")
            values[name] = rows[name][columns_by_name(name, signal.names, names)]
        return Reading(at_s, values)

    def write(self, commands: Values) -> None:
        """Publish commands, within the limits of the settings."""
        described = self.describe()
        self._check_connection()
        check_commands(commands, described)
        self._publish(commands[self.settings.command])

    def stop(self, action: str) -> None:
        """Command the present position, or nothing, until the next `write`."""
        described = self.describe()
        if action not in described.safe_actions:
            known = ", ".join(described.safe_actions)
            raise DriverError(f"{action!r} is none of its safe actions: {known}.")
        self._check_connection()
        row = np.zeros(len(self.settings.joints))
        if self.settings.command == "joint_position":
            row = self.read().values["joint_position"]
        self._publish(row)

    def disconnect(self) -> None:
        """Let the robot do its safe action and close the connection."""
        if self._described is not None and self._client.is_connected:
            self.stop(self._described.safe_actions[0])
            self._states.unsubscribe()
            self._commands.unadvertise()
        self._close()

    def _publish(self, row: Any) -> None:
        options = self.settings
        row = row if options.lower is None else np.maximum(row, options.lower)
        numbers = (row if options.upper is None else np.minimum(row, options.upper)).tolist()
        if options.message == "array":
            message = {"layout": {"dim": [], "data_offset": 0}, "data": numbers}
        else:
            # Until the next command is there.
            whole, rest = divmod(round(1e9 / options.rate_hz), 10**9)
            names = ("sec", "nanosec") if options.ros == 2 else ("secs", "nsecs")
            point = {_FIELDS[options.command]: numbers}
            point["time_from_start"] = dict(zip(names, (whole, rest), strict=True))
            message = {"joint_names": options.joints, "points": [point]}
        self._commands.publish(self._ros.Message(message))

    def _describe(self) -> Description:
        options = self.settings
        assert self._newest is not None
        names, rows = self._rows_of(self._newest[1])
        columns_by_name(f"joints on {options.states}", options.joints, names)
        if "joint_position" not in rows:
            raise DriverError(f"{self._where}: the joint states have no positions.")
        joints = tuple(options.joints)
        slides = [joint in options.sliders for joint in joints]
        limits = (None if one is None else tuple(one) for one in (options.lower, options.upper))
        command = Signal(joints, unit_of(options.command, slides), *limits)
        return Description(
            robot=self._where,
            rate_hz=options.rate_hz,
            sensors={name: Signal(joints, unit_of(name, slides)) for name in rows},
            commands={options.command: command},
            safe_actions=("stop",) if options.command == "joint_torque" else ("hold",),
        )

    def _rows_of(self, message: dict[str, Any]) -> tuple[list[str], dict[str, Any]]:
        """Return the names of the joints in a message, and what it has of all of them."""
        try:
            names = [str(name) for name in message["name"]]
            found = {name: np.array(message[key], np.float64) for name, key in _SENSORS.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise DriverError(f"{self._where}: no joint state: {one_line(error)}.") from error
        return names, {name: row for name, row in found.items() if row.shape == (len(names),)}

    def _keep(self, message: dict[str, Any]) -> None:
        """Keep a message; called by a thread of roslibpy."""
        self._newest = (time.monotonic(), message)
        self._came.set()

    def _check_connection(self) -> None:
        if not self._client.is_connected:
            self._close()
            raise DriverError(f"{printable(self._where)}: the connection broke.")

    def _close(self) -> None:
        client, self._client, self._described = self._client, None, None
        if client is not None:
            # Its thread goes on: Twisted's reactor cannot be started twice.
            client.close()
