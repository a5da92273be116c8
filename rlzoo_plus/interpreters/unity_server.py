"""Serves Unity builds of ML-Agents; runs in an interpreter with `mlagents_envs` alone.

Use: as `env_server.py`, whose messages it speaks. A world is a player of Unity, the process of a
build, with all agents of one behavior. The player is a client of gRPC and calls the server that
`mlagents_envs` opens for it, here on this machine alone.
"""

from __future__ import annotations

import atexit
import collections
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import env_server
import numpy as np
from unity_rows import Rows

try:
    import grpc
    from mlagents_envs import env_utils, environment, rpc_communicator
    from mlagents_envs.base_env import ActionTuple
    from mlagents_envs.communicator_objects.unity_message_pb2 import UnityMessageProto
    from mlagents_envs.side_channel.engine_configuration_channel import EngineConfigurationChannel
    from mlagents_envs.side_channel.environment_parameters_channel import (
        EnvironmentParametersChannel,
    )

    missing: ImportError | None = None
    _Communicator: Any = rpc_communicator.RpcCommunicator
    _Environment: Any = environment.UnityEnvironment
except ImportError as error:
    missing, _Communicator, _Environment = error, object, object

_LOOK_S, _CLOSING_S = 0.2, 5.0
_PORTS, _OK = 1000, 200
_MOST_BYTES = 2**28
_LINES, _LONGEST_LINE = 3, 60
# Exchanges without an agent that asks for a decision.
_MOST_SILENT = 10_000
_players: set[subprocess.Popen[bytes]] = set()


class PlayersEnd(_Communicator):  # type: ignore[misc]
    """The server that a player calls, and the player's process."""

    def __init__(self, options: dict[str, Any], args: list[str]) -> None:
        self._options, self._args = options, args
        self._lines: Any = collections.deque(maxlen=_LINES)
        self.process: Any = None
        super().__init__(0, options["base_port"] or 0, options["timeout_s"])

    def create_server(self) -> None:
        """Open a port of this machine, and start the player with its number."""
        servicer = rpc_communicator.UnityToExternalServicerImplementation()
        self.unity_to_external = servicer
        # Two servers must never share a port.
        options = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", _MOST_BYTES)]
        bound = 0
        for port in range(self.port, self.port + (_PORTS if self.port else 1)):
            pool = concurrent.futures.ThreadPoolExecutor(max_workers=2)
            self.server = grpc.server(pool, options=options)
            rpc_communicator.add_UnityToExternalProtoServicer_to_server(servicer, self.server)
            with contextlib.suppress(RuntimeError):
                bound = self.server.add_insecure_port(f"127.0.0.1:{port}")
            if bound:
                break
        else:
            raise ValueError(f"no port from {self.port} on is free")
        self.server.start()
        self.is_open = True
        self._start(bound)

    def _start(self, port: int) -> None:
        executable = self._options["executable"]
        path = env_utils.validate_environment_path(executable) or executable
        self.name = os.path.basename(path)
        self.process = subprocess.Popen(
            [path, _Environment._PORT_COMMAND_LINE_ARG, str(port), *self._args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        _players.add(self.process)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in iter(lambda: self.process.stdout.readline(1000), b""):
            if line.strip():
                self._lines.append(line.decode(errors="replace").strip()[:_LONGEST_LINE])

    def check(self) -> None:
        """Raise what there is to say about a player that has ended."""
        code = self.process.poll()
        if code is None:
            return
        self._listener.join(_LOOK_S)
        how = f"ended with exit code {code}"
        if code < 0:
            how = "was killed by " + signal.Signals(-code).name
        raise ChildProcessError(f"{self._player} {how}: {self._said}")

    @property
    def _player(self) -> str:
        return f"the Unity player {self.name} (pid {self.process.pid})"

    @property
    def _said(self) -> str:
        return " | ".join(self._lines) or "it printed nothing"

    def poll_for_timeout(self, poll_callback: Any = None) -> None:
        """Wait for the player, as long as it lives and `timeout_s` lasts."""
        until = time.monotonic() + self.timeout_wait
        while not self.unity_to_external.parent_conn.poll(_LOOK_S):
            self.check()
            if time.monotonic() > until:
                limit = f"env.kwargs.timeout_s={self.timeout_wait:g}"
                raise TimeoutError(f"{self._player} has not answered for {limit}: {self._said}")

    def initialize(self, inputs: Any, poll_callback: Any = None) -> Any:
        """Exchange the first messages; the second one may take as long as loading a scene."""
        self.poll_for_timeout()
        output = self.unity_to_external.parent_conn.recv().unity_output
        message = UnityMessageProto()
        message.header.status = _OK
        message.unity_input.CopyFrom(inputs)
        self.unity_to_external.parent_conn.send(message)
        self.poll_for_timeout()
        self.unity_to_external.parent_conn.recv()
        return output

    def close(self) -> None:
        """Tell the player to quit; end it if it does not."""
        with contextlib.suppress(OSError):
            super().close()
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_CLOSING_S)
            _kill(self.process)
            self.process.wait()
            _players.discard(self.process)


def _kill(player: subprocess.Popen[bytes]) -> None:
    """Kill a player and what it has started; its number may be another's once it has ended."""
    if player.poll() is None:
        os.killpg(player.pid, signal.SIGKILL)


def _kill_all() -> None:
    for player in list(_players):
        _kill(player)


class Unity(_Environment):  # type: ignore[misc]
    """A `UnityEnvironment` whose player is started here."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self._options = options
        engine, parameters = EngineConfigurationChannel(), EnvironmentParametersChannel()
        engine.set_configuration_parameters(
            time_scale=options["time_scale"], target_frame_rate=-1, capture_frame_rate=60
        )
        for name, value in sorted(options["parameters"].items()):
            parameters.set_float_parameter(name, value)
        try:
            super().__init__(seed=seed, side_channels=[engine, parameters])
        except BaseException:
            self.end()
            raise

    def _get_communicator(self, *_: Any) -> PlayersEnd:
        args = ["-nographics", "-batchmode"] if self._options["no_graphics"] else []
        # Unity prints its log with it.
        log = [] if "-logFile" in self._options["args"] else ["-logFile", "-"]
        own = [str(word) for word in self._options["args"]]
        return PlayersEnd(self._options, [*args, *log, *own])

    def end(self) -> None:
        """End the player; whatever state it is in."""
        # It keeps every environment until the interpreter ends.
        atexit.unregister(self._close)
        with contextlib.suppress(Exception):
            self._close()


class UnityWorld:
    """A player, and the rows of its agents; stands where `env_server.World` stands."""

    def __init__(self, request: dict[str, Any]) -> None:
        if missing is not None:
            raise missing
        self.options, self._count = request["kwargs"], request["kwargs"]["agents"]
        self.env = self.bare = self
        self._unity: Any = None
        try:
            self._begin(request["seed"])
        except BaseException:
            # Threads of a server that is open keep this process from ending.
            self.close()
            raise

    def facts(self) -> dict[str, Any]:
        """Return what the other side needs to know."""
        return {
            "observation_space": self._rows.observation_space,
            "action_space": self._rows.action_space,
            "count": len(self._rows.table),
        }

    def reset(self, seed: int, options: Any) -> list[np.ndarray]:
        """Return what the agents of a fresh player see, which was given a seed."""
        if not self._is_fresh or seed != self._seed:
            self._begin(seed)
        return self._now()

    def _now(self) -> list[np.ndarray]:
        found: list[np.ndarray] = self._rows.step()
        return found

    def _begin(self, seed: int) -> None:
        """Start a player anew: its random numbers are seeded by that alone."""
        self.close()
        executable = self.options["executable"]
        if not os.path.exists(executable):
            raise ValueError("there is no build at env.kwargs.executable=" + executable)
        self._seed, self._is_fresh = seed, True
        self._unity = Unity(self.options, seed)
        self._unity.reset()
        self._name = self._chosen()
        # Behaviors may come after agents of others.
        for _ in range(_MOST_SILENT):
            decisions, terminals = self._unity.get_steps(self._name)
            if len(decisions):
                break
            self._unity.step()
        else:
            raise ValueError("no agent of behavior " + self._name + " asks for a decision")
        spec = self._unity.behavior_specs[self._name]
        self._count = self._count or len(decisions)
        self._rows = Rows(self._name, spec, self._count)
        self._rows.take(decisions, terminals)
        self._rows.clear()
        self._rows.note()

    def _chosen(self) -> str:
        """Return the name of the behavior, with its team."""
        names, wanted = sorted(self._unity.behavior_specs), self.options["behavior"]
        found = names
        if wanted is not None:
            found = [name for name in names if wanted in (name, name.partition("?")[0])]
        if len(found) == 1:
            return str(found[0])
        if wanted is None:
            if not names:
                raise ValueError("the build has no behavior")
            all_of_them = ", ".join(names)
            raise ValueError(f"set env.kwargs.behavior to one that the build has: {all_of_them}")
        many = "several" if found else "none"
        text = f"env.kwargs.behavior={wanted} names {many} of those that the build has"
        raise ValueError(f"{text}: {', '.join(names)}")

    def step(self, actions: np.ndarray) -> list[np.ndarray]:
        """Act, and go on until an agent asks for its next action."""
        self._is_fresh = False
        self._rows.clear()
        continuous, discrete = self._rows.actions(actions)
        self._unity.set_actions(self._name, ActionTuple(continuous, discrete))
        for _ in range(_MOST_SILENT):
            self._unity.step()
            if self._rows.take(*self._unity.get_steps(self._name)):
                self._rows.note()
                return self._now()
        raise ValueError("no agent of behavior " + self._name + " asks for a decision any more")

    def replay(self, actions: np.ndarray) -> list[np.ndarray]:
        """Act with one set of actions after the other; return the last step."""
        for given in actions:
            self.step(given)
        return self._now()

    def digest(self) -> str:
        """Return a hash of all that this player has given."""
        return str(self._rows.digest())

    def close(self) -> None:
        """End the player."""
        if self._unity is not None:
            self._unity.end()
            self._unity = None


if __name__ == "__main__":
    env_server.main(*map(int, sys.argv[1:]), kind=UnityWorld, at_end=_kill_all)
