"""Makes the tracker that a configuration names, and keeps its errors away from the run."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.config.catalog import TRACKERS
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.config.schema import TrackerConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.tracking.tracker import Tracker

logger = logging.getLogger(__name__)


def check_tracker(config: TrackerConfig, *, installed_here: bool = True) -> None:
    """Check a tracker before anything of the run is created.

    Args:
        config: The section `tracker`.
        installed_here: Whether the run trains here: then package and settings are tried, too.

    Raises:
        ConfigError: The name is unknown, its package is missing or its settings are wrong.
    """
    TRACKERS.check_name(config.name)
    if installed_here:
        make_tracker(config)


def make_tracker(config: TrackerConfig) -> Tracker:
    """Return the tracker that a configuration names; its errors cannot end a run.

    Raises:
        ConfigError: The name is unknown, its package is missing or its settings are wrong.
    """
    TRACKERS.check_name(config.name)
    settings = dict(config.model_extra or {})
    if "kwargs" in settings:
        settings["kwargs"] = reveal(settings["kwargs"], "tracker.kwargs")
    own = settings_of(TrackerConfig(name=config.name, **settings))
    return SafeTracker(TRACKERS.load(config.name)(own), config.name)


class SafeTracker:
    """A tracker whose errors end the tracking, never the run.

    Only a `ConfigError` of `start` is raised. After the first other error, and after `finish` or
    `fail`, every call does nothing.
    """

    def __init__(self, tracker: Tracker, name: str) -> None:
        """Guard a tracker, whose name warnings show."""
        self._tracker = tracker
        self._name = name
        self._active = False

    def start(self, config: dict[str, Any], run_dir: Path) -> None:
        """Open the run; see `Tracker.start`."""
        self._active = True
        self._call(self._tracker.start, config, run_dir, passed_on=(ConfigError,))

    def log(self, metrics: dict[str, float], step: int) -> None:
        """Record numbers; see `Tracker.log`."""
        self._call(self._tracker.log, metrics, step)

    def finish(self, result: dict[str, Any], files: list[Path]) -> None:
        """Record the outcome; see `Tracker.finish`."""
        self._call(self._tracker.finish, result, files, is_last=True)

    def fail(self, message: str) -> None:
        """Close the run as failed; see `Tracker.fail`."""
        self._call(self._tracker.fail, redact(message), is_last=True)

    def _call(
        self,
        method: Callable[..., None],
        *arguments: Any,
        is_last: bool = False,
        passed_on: tuple[type[Exception], ...] = (),
    ) -> None:
        if not self._active:
            return
        self._active = not is_last
        try:
            method(*arguments)
        except passed_on:
            self._active = False
            raise
        except Exception as error:
            # On one line, without a password that an address in it may hold.
            text = " ".join(f"{type(error).__name__}: {error}".split())
            text = redact(re.sub(r"//[^/@\s]+@", "//***@", text))
            warning = "tracker=%s stopped working (%s). The run continues without it."
            logger.warning(warning, self._name, text)
            if self._active:
                self._active = False
                # The run at the service must not look alive, and its threads must end.
                with suppress(Exception):
                    self._tracker.fail(f"tracking stopped: {text}")
