"""Serves a robot to a control loop on another machine, or in another Python: the robot's end.

This file stands alone: copy it beside your driver. It needs Python 3.8 and NumPy 1.20, or later.

    class MyRobot:
        def connect(self): ...       # Reach the motors; nothing moves yet
        def describe(self):          # Once, before anybody connects
            signal = {"names": ["hip", "knee"], "unit": "rad", "lower": [-1, -2], "upper": [1, 0]}
            return {"robot": "my_leg", "rate_hz": 50, "safe_actions": ["hold", "stop"],
                    "sensors": {"joint_position": signal}, "commands": {"joint_position": signal}}
        def read(self):              # time_s: when it was measured, by time.monotonic()
            return {"time_s": time.monotonic(), "values": {"joint_position": [0.1, 0.2]}}
        def write(self, commands): ...   # {"joint_position": array of shape (2,)}
        def stop(self, action): ...      # One of its safe actions, until the next write
        def disconnect(self): ...
        def reset(self, seed): ...       # If it can: where an episode starts

    if __name__ == "__main__":
        main(MyRobot())

The calls come from one thread, and each must take less than a control period. A robot may also
have `tick()`, which is called again after as many seconds as it returns.

A message is its length, four bytes, the highest first, and so many bytes of JSON. A request has a
`call`, its arguments and an `id`, the reply this `id` and a `result` or an `error`. One client at a
time. When no command comes for `watchdog_s`, when the connection breaks, and after a command that
makes no sense, the robot does its safe action, and the client cannot command it before it has
called `stop`, `reset` or `connect`.

Whoever reaches the port commands the robot: there are no passwords and no encryption. By default
only this machine does; let others come through a tunnel of SSH.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import selectors
import signal
import socket
import struct
import sys
import time
from typing import Any

import numpy as np

PROTOCOL = 1
MOST_BYTES = 2**20
LENGTH = struct.Struct(">I")
PERIODS = 2
_RECEIVED_AT_ONCE = 2**16
_LONGEST_NUMBER = 30
_LINGER_S = 1.0
_MOST_REFUSED = 8
_SAFE_ACTIONS = ("hold", "damp", "stop")


class CloseConnection(Exception):  # noqa: N818
    """Raised by a robot that wants the client's connection to break, as a test does."""


class MessageError(ValueError):
    """What came is no message of this protocol."""


def packed(message: dict[str, Any]) -> bytes:
    """Return a message as it is sent; floats arrive as they are."""
    data = json.dumps(message, separators=(",", ":")).encode()
    if len(data) > MOST_BYTES:
        raise MessageError(f"a message of {len(data)} bytes; {MOST_BYTES} at most")
    return LENGTH.pack(len(data)) + data


def unpacked(buffer: bytearray) -> dict[str, Any] | None:
    """Take the first message off a buffer and return it; None if it is not all there.

    Raises:
        MessageError: It is too long, or no JSON object.
    """
    if len(buffer) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffer)
    if length > MOST_BYTES:
        raise MessageError(f"a message of {length} bytes; {MOST_BYTES} at most")
    stop = LENGTH.size + length
    if len(buffer) < stop:
        return None
    data = bytes(buffer[LENGTH.size : stop])
    del buffer[:stop]
    try:
        message = json.loads(data.decode(), parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise MessageError("no JSON: " + str(error)[:100]) from None
    if not isinstance(message, dict):
        raise MessageError("no JSON object")
    return message


def _integer(text: str) -> int:
    # Python needs seconds for one of a million digits.
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


class RobotEnd:
    """Serves one robot, to one client at a time.

    Attributes:
        address: Host and port that it listens at.
        description: What the robot said of itself, and its `watchdog_s`.
    """

    def __init__(
        self,
        robot: Any,
        host: str = "127.0.0.1",
        port: int = 0,
        watchdog_s: float | None = None,
        safe_action: str | None = None,
    ) -> None:
        """Listen.

        Args:
            robot: An object with the calls of the module's docstring.
            host: Address to listen at; by default only this machine can connect.
            port: Port, 0 for any that is free.
            watchdog_s: The robot does its safe action after so long without a command [s]; two
                periods of its rate if None, never if infinite.
            safe_action: What it does then; the first of its safe actions if None.

        Raises:
            ValueError: What the robot says of itself is not as described above.
        """
        self._robot = robot
        self.description = _described(robot.describe())
        usual_s = PERIODS / self.description["rate_hz"]
        self._watchdog_s = usual_s if watchdog_s is None else watchdog_s
        if not self._watchdog_s > 0:
            raise ValueError(f"watchdog_s={watchdog_s} must be above 0")
        finite = math.isfinite(self._watchdog_s)
        self.description["watchdog_s"] = self._watchdog_s if finite else None
        self._usual_action = self._known_action(safe_action or self.description["safe_actions"][0])
        self._safe_action = self._usual_action
        self._listener = socket.create_server((host, port))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._client: socket.socket | None = None
        self._peer, self._buffer = "", bytearray()
        self._refused: dict[socket.socket, float] = {}
        self._is_connected = False
        self._commanded_s: float | None = None  # Of the last command, while the robot is driven
        self._cause: str | None = None  # Why it stopped itself, until the client has reacted
        self._last_stop: dict[str, str] | None = None  # The same, for the next client
        self._first_tick_s = time.monotonic() if hasattr(robot, "tick") else math.inf
        self._next_tick_s = self._first_tick_s

    def serve(self) -> None:
        """Serve until the process is told to end; then the robot does its safe action."""
        try:
            while True:
                self.turn()
        finally:
            self.close()

    def close(self) -> None:
        """Stop the robot and close all connections."""
        self._lose_client("the robot's end was closed")
        for one in self._refused:
            one.close()
        self._refused.clear()
        self._selector.close()
        self._listener.close()

    def turn(self, longest_s: float = 0.5) -> None:
        """Wait for what comes next, at most so long, and do it."""
        now = time.monotonic()
        due_s = [now + longest_s, self._next_tick_s, *self._refused.values()]
        if self._commanded_s is not None:
            due_s.append(self._commanded_s + self._watchdog_s)
        for key, _ in self._selector.select(max(0.0, min(due_s) - now)):
            if key.fileobj is self._listener:
                self._accept()
            elif key.fileobj is self._client:
                self._receive()
            else:
                self._drain(key.fileobj)
        self._keep_time()
        now = time.monotonic()
        for one in [one for one, end_s in self._refused.items() if now > end_s]:
            self._forget(one)

    def _keep_time(self) -> None:
        """Let the robot tick, and stop it, where that is due."""
        if time.monotonic() >= self._next_tick_s:
            self._tick()
        now = time.monotonic()
        if self._commanded_s is not None and now - self._commanded_s > self._watchdog_s:
            self._make_safe(f"no command came for {1e3 * (now - self._commanded_s):.0f} ms")

    def _tick(self) -> None:
        try:
            self._next_tick_s = time.monotonic() + float(self._robot.tick())
        except CloseConnection as error:
            self._next_tick_s = time.monotonic()
            self._lose_client(str(error))
        except Exception as error:
            self._next_tick_s = time.monotonic() + 1 / self.description["rate_hz"]
            self._make_safe(_told(error))

    # Clients ------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, peer = self._listener.accept()
        except OSError:
            return
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(min(_LINGER_S, self._watchdog_s))
        self._selector.register(sock, selectors.EVENT_READ)
        # One that says nothing, or has let the robot stop itself, makes room.
        if self._client is not None and self._is_connected and self._cause is None:
            self._refuse(sock, None, f"busy: {self._peer} has this robot")
            return
        self._lose_client("another client came")
        self._client, self._peer, self._buffer = sock, str(peer[0]), bytearray()

    def _receive(self) -> None:
        assert self._client is not None
        try:
            data = self._client.recv(_RECEIVED_AT_ONCE)
        except OSError as error:
            self._lose_client(f"the connection broke: {error}")
            return
        if not data:
            self._lose_client("the connection broke: the client closed it")
            return
        self._buffer += data
        number = None
        try:
            while self._client is not None:
                message = unpacked(self._buffer)
                if message is None:
                    return
                number = message.get("id")
                self._answer(message)
                # What it was asked may be due, and many requests may have come at once.
                self._next_tick_s = min(self._next_tick_s, self._first_tick_s)
                self._keep_time()
        except MessageError as error:
            sock, self._client = self._client, None
            self._refuse(sock, number, str(error))
            self._lose_client(f"the client sent {error}")

    def _answer(self, message: dict[str, Any]) -> None:
        """Do what a request asks, and reply; a robot's error is a reply, too."""
        number, call = message.get("id"), message.get("call")
        if not isinstance(call, str) or call not in _CALLS:
            raise MessageError(f"no call of: {', '.join(_CALLS)}")
        if not self._is_connected and call != "connect":
            raise MessageError(f"{call} before connect")
        reply: dict[str, Any] = {"id": number}
        try:
            reply["result"] = _CALLS[call](self, message)
        except CloseConnection as error:
            self._lose_client(str(error))
            return
        except MessageError:
            raise
        except Exception as error:
            reply["error"] = _told(error)
            if call == "write" and self._cause is None:
                self._make_safe(_told(error))
        self._send(reply)
        if call == "disconnect":
            self._lose_client(None)

    def _send(self, reply: dict[str, Any]) -> None:
        if self._client is None:
            return
        try:
            self._client.sendall(packed(reply))
        except (OSError, ValueError) as error:
            self._lose_client(f"the connection broke: {error}")

    def _lose_client(self, cause: str | None) -> None:
        """Let go of the client, if there is one; it was its own wish if there is no cause."""
        if self._client is not None:
            self._selector.unregister(self._client)
            self._client.close()
            self._client = None
        if not self._is_connected:
            return
        self._is_connected = False
        if self._cause is None or cause is None:
            self._make_safe(cause)
        self._safe_action = self._usual_action
        try:
            self._robot.disconnect()
        except Exception as error:
            _say(f"disconnect failed: {_told(error)}")

    def _refuse(self, sock: socket.socket | None, number: Any, text: str) -> None:
        """Tell a client why, and close; at once, the system would throw the text away."""
        assert sock is not None
        with contextlib.suppress(OSError):
            sock.sendall(packed({"id": number, "error": text}))
            sock.shutdown(socket.SHUT_WR)
        self._refused[sock] = time.monotonic() + _LINGER_S
        if len(self._refused) > _MOST_REFUSED:
            self._forget(next(iter(self._refused)))

    def _drain(self, sock: Any) -> None:
        try:
            if sock in self._refused and not sock.recv(_RECEIVED_AT_ONCE):
                self._forget(sock)
        except OSError:
            self._forget(sock)

    def _forget(self, sock: socket.socket) -> None:
        del self._refused[sock]
        self._selector.unregister(sock)
        sock.close()

    # Calls --------------------------------------------------------------------------------------

    def _make_safe(self, cause: str | None) -> None:
        """Let the robot do its safe action, or another one if that fails."""
        self._commanded_s = None
        others = [one for one in self.description["safe_actions"] if one != self._safe_action]
        for action in [self._safe_action, *others]:
            try:
                self._robot.stop(action)
                break
            except Exception as error:
                _say(f"{action} failed: {_told(error)}")
                cause = f"{cause or 'disconnected'}; {action} failed: {_told(error)}"
        else:
            action = "nothing"
        if cause is not None:
            self._cause = cause
            self._last_stop = {"action": action, "cause": cause}
            _say(f"the robot does its safe action, {action}: {cause}")

    def _connect(self, message: dict[str, Any]) -> dict[str, Any]:
        if message.get("protocol") != PROTOCOL:
            raise MessageError(f"protocol {message.get('protocol')!r}; this end has {PROTOCOL}")
        self._safe_action = self._known_action(message.get("safe_action") or self._usual_action)
        if not self._is_connected:
            self._robot.connect()
        self._is_connected, self._cause = True, None
        last, self._last_stop = self._last_stop, None
        return {"description": self.description, "last_stop": last, "now_s": time.monotonic()}

    def _describe(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        return {"description": self.description}

    def _read(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        reading = self._robot.read()
        sensors = self.description["sensors"]
        values = {name: _numbers(name, one, reading["values"]) for name, one in sensors.items()}
        now_s = time.monotonic()
        return {"time_s": float(reading["time_s"]), "now_s": now_s, "values": values}

    def _write(self, message: dict[str, Any]) -> dict[str, Any]:
        if self._cause is not None:
            raise RuntimeError(f"the robot stopped itself: {self._cause}")
        commands, signals = message.get("commands"), self.description["commands"]
        if not isinstance(commands, dict) or set(commands) != set(signals):
            raise ValueError(f"give commands of: {', '.join(signals)}")
        checked = {}
        for name, one in signals.items():
            row = np.array(_numbers(name, one, commands), np.float64)
            if not np.isfinite(row).all():
                wrong = int(np.flatnonzero(~np.isfinite(row))[0])
                raise ValueError(f"{name}: {one['names'][wrong]} is {row[wrong]}")
            # Limits may be missing, and -0.0 must stay what it is.
            row = row if one["lower"] is None else np.maximum(row, one["lower"])
            checked[name] = row if one["upper"] is None else np.minimum(row, one["upper"])
        self._robot.write(checked)
        self._commanded_s = time.monotonic()
        return {}

    def _stop(self, message: dict[str, Any]) -> dict[str, Any]:
        action = self._known_action(message.get("action"))
        self._robot.stop(action)
        self._commanded_s = self._cause = None
        return {}

    def _reset(self, message: dict[str, Any]) -> dict[str, Any]:
        seed = message.get("seed")
        if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int) or seed < 0):
            raise ValueError(f"seed={seed!r} is no number from 0 on")
        reset = getattr(self._robot, "reset", None)
        self._commanded_s = self._cause = None
        if reset is not None:
            reset(seed)
        return {}

    def _disconnect(self, message: dict[str, Any]) -> dict[str, Any]:
        del message
        return {}

    def _known_action(self, action: Any) -> str:
        known = self.description["safe_actions"]
        if not isinstance(action, str) or action not in known:
            raise ValueError(f"{action!r} is none of its safe actions: {', '.join(known)}")
        return action


_CALLS = {
    "connect": RobotEnd._connect,
    "describe": RobotEnd._describe,
    "read": RobotEnd._read,
    "write": RobotEnd._write,
    "stop": RobotEnd._stop,
    "reset": RobotEnd._reset,
    "disconnect": RobotEnd._disconnect,
}


def main(robot: Any) -> None:
    """Serve a robot from a command line: --host, --port, --watchdog-s, --safe-action."""
    parser = argparse.ArgumentParser(description="Serve this robot to rlzoo-plus run-robot.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; %(default)s")
    parser.add_argument("--port", type=int, default=5555, help="port; %(default)s")
    parser.add_argument("--watchdog-s", type=float, help="safe after so long; two periods")
    parser.add_argument("--safe-action", help="what is done then; the first the robot names")
    given = parser.parse_args()
    try:
        end = RobotEnd(robot, given.host, given.port, given.watchdog_s, given.safe_action)
    except (OSError, ValueError) as error:
        sys.exit(f"{type(error).__name__}: {error}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    host, port = end.address
    _say(f"serving {end.description['robot']} at {host}:{port}; Ctrl-C ends")
    try:
        end.serve()
    except KeyboardInterrupt:
        sys.exit(130)


def _say(text: str) -> None:
    # Its terminal may have been closed, and the robot is still there.
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _told(error: Exception) -> str:
    kind, text = type(error).__name__, " ".join(str(error).split())[:300]
    return text if text and kind in ("RuntimeError", "ValueError") else f"{kind}: {text}"


def _described(given: Any) -> dict[str, Any]:
    """Return what a robot says of itself, checked and as plain data."""
    wanted = ("robot", "rate_hz", "sensors", "commands", "safe_actions")
    if not isinstance(given, dict) or any(name not in given for name in wanted):
        raise ValueError(f"describe() must return a dictionary with: {', '.join(wanted)}")
    rate = float(given["rate_hz"])
    actions = [str(one) for one in given["safe_actions"]]
    if not 0 < rate < math.inf:
        raise ValueError(f"describe(): rate_hz={rate} must be above 0")
    if not actions or any(one not in _SAFE_ACTIONS for one in actions):
        raise ValueError(f"describe(): safe_actions={actions}; name some of {_SAFE_ACTIONS}")
    found = {"robot": str(given["robot"]), "rate_hz": rate, "safe_actions": actions}
    for kind in ("sensors", "commands"):
        found[kind] = {
            str(name): _signal(f"{kind}: {name}", one) for name, one in given[kind].items()
        }
    return found


def _signal(where: str, given: Any) -> dict[str, Any]:
    names = [str(name) for name in given["names"]]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"describe(): {where} needs names, each once; it has {names}")
    found: dict[str, Any] = {"names": names, "unit": str(given["unit"])}
    for side in ("lower", "upper"):
        limits = given.get(side)
        found[side] = None if limits is None else [float(one) for one in limits]
        if limits is not None and len(limits) != len(names):
            raise ValueError(f"describe(): {where} has {len(limits)} limits for {len(names)} names")
    return found


def _numbers(name: str, described: dict[str, Any], given: Any) -> list[float]:
    """Return the numbers of a signal, as many as it has names."""
    if name not in given:
        raise ValueError(f"{name} is missing")
    row, names = given[name], described["names"]
    row = row.tolist() if isinstance(row, (np.ndarray, np.generic)) else row
    if not isinstance(row, (list, tuple)) or len(row) != len(names):
        raise ValueError(f"{name} must be {len(names)} numbers: {', '.join(names)}")
    if any(isinstance(one, bool) or not isinstance(one, (int, float)) for one in row):
        raise ValueError(f"{name} must be numbers")
    return [float(one) for one in row]
