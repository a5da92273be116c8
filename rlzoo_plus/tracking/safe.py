"""The rule that tracking serves the run: a tracker that breaks is left behind."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tracking.base import Tracker

logger = logging.getLogger(__name__)


class SafeTracker:
    """A tracker whose errors end the tracking, never the run.

    Only a `ConfigError` of `start` passes. After the first other error, and after `finish` or
    `fail`, every call does nothing.
    """

    def __init__(self, tracker: Tracker, name: str) -> None:
        """Wrap a tracker.

        Args:
            tracker: The tracker to guard.
            name: What the warning calls it.
        """
        self._tracker = tracker
        self._name = name
        self._active = False

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run; see `Tracker.start`."""
        try:
            self._tracker.start(config, run_dir)
        except ConfigError:
            raise
        except Exception as error:
            self._warn(error)
            self._abandon(error)
        else:
            self._active = True

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Record numbers; see `Tracker.log`."""
        if not self._active:
            return
        try:
            self._tracker.log(metrics, step)
        except Exception as error:
            self._warn(error)
            self._abandon(error)

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Record the outcome; see `Tracker.finish`."""
        if not self._active:
            return
        self._active = False
        try:
            self._tracker.finish(result, files)
        except Exception as error:
            self._warn(error)

    def fail(self, message: str) -> None:
        """Close the run as broken; see `Tracker.fail`."""
        if not self._active:
            return
        self._active = False
        try:
            self._tracker.fail(redact(message))
        except Exception as error:
            self._warn(error)

    def _abandon(self, error: Exception) -> None:
        self._active = False
        # The run at the service must not look alive, and its threads must go.
        with suppress(Exception):
            self._tracker.fail(f"tracking stopped: {_describe(error)}")

    def _warn(self, error: Exception) -> None:
        logger.warning(
            "tracker=%s stopped working (%s). The run goes on without it.",
            self._name,
            _describe(error),
        )


def _describe(error: Exception) -> str:
    """Return an error in one line, without a password that an address in it may hold."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return redact(re.sub(r"//[^/@\s]+@", "//***@", text))
