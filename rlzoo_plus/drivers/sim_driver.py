"""The driver of a simulated robot, which lives in a process of its own as a real one would."""

from __future__ import annotations

import json
import select
import subprocess
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.drivers.socket_driver import Seconds, SocketDriver, SocketSettings
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.processes import start_child

FromZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_START_S = 120.0
_END_S = 5.0


class SimSettings(BaseModel):
    """Which robot, and what goes wrong with it; times since `connect` are the robot's own."""

    model_config = ConfigDict(extra="forbid")

    env: str  # Id of its environment, one built on `robots`
    kwargs: dict[str, Any] = {}  # `env.kwargs`, such as `engine`
    packages: list[str] = []  # That register the environment
    clock: Literal["real", "simulated"] = "real"  # Simulated: a control step for each command
    latency_s: FromZero = 0.0  # From a command to its effect
    jitter_s: FromZero = 0.0  # Up to so much more, drawn for each command
    dropped: Annotated[float, Field(ge=0, le=1)] = 0.0  # Share of reads that give the old reading
    stuck: list[str] = []  # Motors that do not move; driven by torques, they have no torque
    disconnect_after_s: FromZero | None = None  # The connection breaks
    nan_after_s: FromZero | None = None  # The positions of the joints are not numbers
    stale_after_s: FromZero | None = None  # Readings, and their times, stay the same
    seed: Annotated[int, Field(ge=0)] = 0  # Of the first start, and of jitter and dropped reads
    watchdog_s: Seconds | None = None  # Two periods if None; with a simulated clock there is none
    safe_action: Literal["hold", "damp", "stop"] | None = None
    timeout_s: Seconds = 10.0  # For an answer


class SimDriver(SocketDriver):
    """A robot of `robots` in a process of its own, which `connect` starts."""

    Settings = SimSettings

    def __init__(self, settings: SimSettings) -> None:
        """Keep the settings; the process is started by `connect`."""
        super().__init__(
            SocketSettings(
                safe_action=settings.safe_action,
                timeout_s=settings.timeout_s,
                connect_timeout_s=settings.timeout_s,
            )
        )
        self._of_robot = settings
        self.is_stepped = settings.clock == "simulated"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def where(self) -> str:
        """Name of the robot, for messages."""
        return f"the simulated {printable(self._of_robot.env)}"

    def connect(self) -> None:
        """Start the robot's process, unless it runs; nothing moves yet.

        Raises:
            ConfigError: The environment cannot be made.
        """
        if self._process is None or self._process.poll() is not None:
            self._end()
            self.settings = self.settings.model_copy(update={"port": self._start()})
        super().connect()

    def disconnect(self) -> None:
        """Let go of the robot, and end its process."""
        super().disconnect()
        self._end()

    def _start(self) -> int:
        """Start the process and return the port that it listens at."""
        ticket = {"settings": self._of_robot.model_dump()}
        self._process = start_child("rlzoo_plus.drivers.sim_robot", ticket)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_S)
        answer = self._process.stdout.readline() if ready else b""
        if not answer:
            self._end()
            raise DriverError(f"{self.where}: its process did not start.")
        found = json.loads(answer)
        if "error" in found:
            self._end()
            raise ConfigError(f"driver sim: {found['error']}")
        return int(found["port"])

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        # It ends with its input.
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
