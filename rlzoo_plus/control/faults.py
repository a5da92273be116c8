"""What ends an episode on a robot before its time: the kinds of faults, and what is watched."""

from __future__ import annotations

from dataclasses import dataclass

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.drivers.driver import DriverError
from rlzoo_plus.errors import EXIT_SIGINT, EXIT_SIGTERM, RUN_ERROR, RunError

# Each is a cause that the log and the last line of the command name.
STALE, SENSOR, JOINT = "stale sensor", "sensor is not a number", "joint outside its limits"
ACTION, OUTSIDE = "action is not a number", "action outside its limits"
COMMAND = "command outside the robot's limits"
DEADLINES, CONNECTION, POLICY = "missed deadlines", "lost connection", "error in the policy"
SIGNAL, OVERRIDE, START = "signal", "override", "start pose not reached"
LEARNER = "learning has ended"


class Fault(RunError):  # noqa: N818 - what it is called on robots
    """Why the robot must do its safe action now.

    Attributes:
        kind: One of the causes above.
        detail: What exactly was found.
        code: Exit code of the command.
    """

    def __init__(self, kind: str, detail: str, code: int = RUN_ERROR) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.code = kind, detail, code


class Overridden(Fault):
    """Somebody has asked for a safe action from outside; `release` goes on.

    Attributes:
        action: What the robot is to do.
    """

    def __init__(self, action: str) -> None:
        super().__init__(OVERRIDE, action)
        self.action = action


def of_signal(name: str) -> Fault:
    """Return the fault of a signal such as SIGTERM."""
    return Fault(SIGNAL, name, EXIT_SIGINT if name == "SIGINT" else EXIT_SIGTERM)


def of_error(error: BaseException) -> Fault:
    """Return the fault that an error of the driver, the policy or the task is."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, DriverError):
        return Fault(CONNECTION, one_line(error))
    text = one_line(error) if isinstance(error, Exception) else repr(error)
    return Fault(POLICY, f"{type(error).__name__}: {text}")


@dataclass(frozen=True)
class Rules:
    """What the loop watches, and what it may do."""

    safe_action: str  # What a fault ends in: hold, damp or stop
    period_s: float
    stale_periods: float = 1.75  # A reading that is older ends the episode
    most_missed: int = 3  # Deadlines missed in a row that end it
    start_speed: float = 0.3  # Of the way to the start pose [rad/s]; a tenth of it in m/s
    dry_run: bool = False  # Read and decide, and never command

    @property
    def stale_s(self) -> float:
        """Age of a reading that is too old."""
        return self.stale_periods * self.period_s
