"""The driver of a robot that another process serves, with `robot_end.py`."""

from __future__ import annotations

import logging
import math
import socket
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.artifacts.untrusted import one_line, printable
from rlzoo_plus.drivers.driver import Description, Driver, DriverError, Reading, Signal, Values
from rlzoo_plus.drivers.robot_end import PROTOCOL, MessageError, packed, unpacked

logger = logging.getLogger(__name__)
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_RECEIVED_AT_ONCE = 2**16


class SocketSettings(BaseModel):
    """Where the robot is, and how long it may take."""

    model_config = ConfigDict(extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=5555, ge=1, le=65535)
    connect_timeout_s: Seconds = 5.0
    timeout_s: Seconds = 1.0  # For an answer; connecting and resetting may take `connect_timeout_s`
    # What the robot does without commands; what its own end says if None
    safe_action: Literal["hold", "damp", "stop"] | None = None


class SocketDriver(Driver):
    """A robot at the other end of a TCP connection.

    Attributes:
        last_stop: Why the robot stopped itself before this connection: `action` and `cause`, or
            None.
    """

    Settings: type[BaseModel] = SocketSettings

    def __init__(self, settings: SocketSettings) -> None:
        """Keep the settings; nothing is reached yet."""
        self.settings = settings
        self.last_stop: Mapping[str, str] | None = None
        self._socket: socket.socket | None = None
        self._buffer = bytearray()
        self._number = 0
        self._description: Description | None = None
        # Of the robot's clock to this one; 0 on one machine [s]
        self._offset_s = 0.0

    @property
    def where(self) -> str:
        """Name of the robot's end, for messages."""
        return f"{self.settings.host}:{self.settings.port}"

    def connect(self) -> None:
        """Reach the robot; nothing moves yet."""
        if self._socket is not None:
            return
        options = self.settings
        try:
            self._socket = socket.create_connection(
                (options.host, options.port), options.connect_timeout_s
            )
        except ConnectionRefusedError:
            raise DriverError(
                f"{self.where}: the connection was refused. Is the robot's end running there?"
            ) from None
        except OSError as error:
            raise DriverError(f"{self.where} cannot be reached: {one_line(error)}.") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer.clear()
        try:
            found = self._call(
                "connect",
                options.connect_timeout_s,
                protocol=PROTOCOL,
                safe_action=options.safe_action,
            )
            self._description = self._read_description(found.get("description"))
        except DriverError:
            self._close()
            raise
        last = found.get("last_stop")
        self.last_stop = last if isinstance(last, dict) else None
        if self.last_stop is not None:
            action, cause = (printable(self.last_stop.get(key)) for key in ("action", "cause"))
            logger.warning("%s stopped itself before (%s): %s.", self.where, action, cause)

    def describe(self) -> Description:
        """Return what it senses and what it can be commanded."""
        if self._description is None:
            raise DriverError(f"{self.where} is not connected. Call connect first.")
        return self._description

    def read(self) -> Reading:
        """Return the newest reading of all sensors."""
        sensors = self.describe().sensors
        asked_s = time.monotonic()
        found = self._call("read")
        answered_s = time.monotonic()
        values, times = found.get("values"), (found.get("time_s"), found.get("now_s"))
        if not isinstance(values, dict) or not all(map(_is_number, times)):
            raise self._broken("its reading is none")
        at_s, now_s = map(float, times)  # type: ignore[arg-type]
        arrays = {}
        for name, signal in sensors.items():
            try:
                arrays[name] = np.array(values.get(name), np.float64)
            except (TypeError, ValueError):
                raise self._broken(f"{name} is no numbers") from None
            if arrays[name].shape != (len(signal.names),):
                raise self._broken(f"{name} has not {len(signal.names)} numbers")
        # It answered between these, by this clock.
        self._offset_s = min(max(self._offset_s, now_s - answered_s), now_s - asked_s)
        return Reading(at_s - self._offset_s, arrays)

    def write(self, commands: Values) -> None:
        """Command the motors until the next command."""
        self.describe()
        rows = {name: np.asarray(row, np.float64).tolist() for name, row in commands.items()}
        self._call("write", commands=rows)

    def stop(self, action: str) -> None:
        """Do a safe action until the next `write`."""
        self.describe()
        self._call("stop", action=action)

    def reset(self, seed: int | None = None) -> None:
        """Put the robot where an episode starts, if its end can."""
        self.describe()
        self._call("reset", self.settings.connect_timeout_s, seed=seed)

    def disconnect(self) -> None:
        """Let go of the robot; it does its safe action, and does it too if this fails."""
        if self._socket is not None:
            try:
                self._call("disconnect")
            except DriverError as error:
                logger.warning("%s", error)
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._description = None

    def _call(self, name: str, timeout_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Ask the robot's end for something and return its answer."""
        if self._socket is None:
            raise DriverError(f"{self.where} is not connected. Call connect first.")
        allowed_s = timeout_s or self.settings.timeout_s
        self._number += 1
        late_s = time.monotonic() + allowed_s
        try:
            self._socket.settimeout(allowed_s)
            self._socket.sendall(packed({"id": self._number, "call": name, **arguments}))
            while True:
                reply = unpacked(self._buffer)
                # Those to calls that an exception here has interrupted are passed over.
                if reply is not None and reply.get("id") in (self._number, None):
                    break
                if reply is None:
                    self._socket.settimeout(max(1e-4, late_s - time.monotonic()))
                    data = self._socket.recv(_RECEIVED_AT_ONCE)
                    if not data:
                        raise self._broken(f"the connection was closed during {name}")
                    self._buffer += data
        except TimeoutError:
            raise self._broken(f"no answer to {name} within {allowed_s:g} s") from None
        except OSError as error:
            raise self._broken(f"the connection broke: {one_line(error)}") from error
        except MessageError as error:
            raise self._broken(f"it sent {printable(error)}") from None
        if "error" in reply:
            raise DriverError(f"{self.where}: {name}: {printable(reply['error'])}.")
        result = reply.get("result")
        if not isinstance(result, dict):
            raise self._broken(f"its answer to {name} is none")
        return result

    def _broken(self, cause: str) -> DriverError:
        """Close the connection, since what comes next would be misread; return the error."""
        self._close()
        return DriverError(f"{self.where}: {cause}.")

    def _read_description(self, found: Any) -> Description:
        try:
            watchdog_s = found["watchdog_s"]
            return Description(
                robot=printable(found["robot"]),
                rate_hz=float(found["rate_hz"]),
                sensors={str(name): _signal(one) for name, one in found["sensors"].items()},
                commands={str(name): _signal(one) for name, one in found["commands"].items()},
                safe_actions=tuple(map(str, found["safe_actions"])),
                watchdog_s=None if watchdog_s is None else float(watchdog_s),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise self._broken(f"it does not describe a robot: {one_line(error)}") from error


def _signal(given: Any) -> Signal:
    lower, upper = (
        None if given[side] is None else tuple(map(float, given[side]))
        for side in ("lower", "upper")
    )
    return Signal(tuple(map(str, given["names"])), str(given["unit"]), lower, upper)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)
