"""What people ask of a running session: signals, Enter before moving, and the override's file.

The override is a file in the session's folder, which only its owner can enter. The loop looks for
it in every period, obeys and removes it, so that who wrote it sees that the loop has taken it.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.run_dir import OUTPUTS
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.control.faults import Overridden, of_signal
from rlzoo_plus.drivers.driver import SAFE_ACTIONS
from rlzoo_plus.errors import ConfigError, RunError, unknown_name

# Where sessions are, and the file that each has.
SESSIONS, LOG = OUTPUTS / "robot", "log.csv"
# What its columns of what the joints read begin with, as identification calls them.
OF_JOINTS = {"joint_position": "position", "joint_velocity": "velocity"}
RELEASE = "release"
WORDS = (*SAFE_ACTIONS, RELEASE)
_FILE, _LONGEST = "override", 20
_PATIENCE_S, _POLL_S = 2.0, 0.02


class Attention:
    """Looks every period for a signal, or an override in the session's folder."""

    def __init__(self, folder: Path, safe_actions: tuple[str, ...]) -> None:
        self._file = folder / _FILE
        self._actions = safe_actions
        self._signal: str | None = None

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Remember a signal until the loop looks."""
        del frame
        self._signal = signal.Signals(number).name

    def __call__(self) -> None:
        """Look.

        Raises:
            Fault: There was a signal, or somebody asks for a safe action.
        """
        if self._signal is not None:
            raise of_signal(self._signal)
        word = self._take()
        if word is not None and word != RELEASE:
            raise Overridden(word)

    def wait_for_release(self) -> None:
        """Wait until the override is released.

        Raises:
            Fault: A signal ends the session, or another safe action is asked for.
        """
        while self._take() != RELEASE:
            self()
            time.sleep(_POLL_S)

    def wait_for_enter(self, tell: Callable[[str], None]) -> None:
        """Wait for Enter; an end of the input counts as a request to stop.

        Raises:
            Fault: Of a signal or an override meanwhile.
        """
        tell("press Enter to let it move")
        while True:
            self()
            if select.select([sys.stdin], [], [], _POLL_S)[0]:
                if not sys.stdin.readline():
                    raise of_signal("SIGINT")
                return

    def _take(self) -> str | None:
        """Return the word in the override's file, which is removed; None if there is none."""
        try:
            descriptor = os.open(self._file, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            is_own = os.fstat(descriptor).st_uid == os.geteuid()
            word = file.read(_LONGEST).decode("ascii", "replace").strip()
        self._file.unlink(missing_ok=True)
        if not is_own:
            return None
        if word == RELEASE or word in self._actions:
            return word
        # Whatever somebody meant in a hurry, the robot does not go on.
        return self._actions[0]


def newest_session() -> Path:
    """Return the folder of the session that was begun last.

    Raises:
        ConfigError: There is none here.
    """
    found = sorted(SESSIONS.glob(f"*/{LOG}"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise ConfigError(f"no session in {SESSIONS}. Name the folder that run-robot has printed.")
    return found[-1].parent


def check(folder: Path, word: str) -> None:
    """Check that there is such a folder, and such an override.

    Raises:
        ConfigError: The word or the folder is unknown.
    """
    if word not in WORDS:
        raise ConfigError(unknown_name("override", printable(word), WORDS))
    if not folder.is_dir():
        raise ConfigError(f"{printable(folder)}: no such session. Name the folder of one.")


def override(folder: Path, word: str) -> None:
    """Ask the session in a folder for a safe action, or to go on; return when it has obeyed.

    Raises:
        ConfigError: The word or the folder is unknown.
        RunError: No loop takes it.
    """
    check(folder, word)
    file = folder / _FILE
    write_atomic(file, f"{word}\n")
    end = time.monotonic() + _PATIENCE_S
    while file.exists():
        if time.monotonic() > end:
            file.unlink(missing_ok=True)
            raise RunError(
                f"no loop has taken it in {_PATIENCE_S:.0f} s: none runs in {printable(folder)}. "
                "The robot's own emergency stop is what is left."
            )
        time.sleep(_POLL_S / 4)
