"""The trackers there are, by the name a configuration uses."""

from __future__ import annotations

from rlzoo_plus.config.catalog import TRACKERS
from rlzoo_plus.config.references import reveal
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.config.schema import TrackerConfig
from rlzoo_plus.tracking.base import Tracker
from rlzoo_plus.tracking.safe import SafeTracker


def check_tracker(config: TrackerConfig, *, installed_here: bool = True) -> None:
    """Check a tracker before anything of the run is made.

    Args:
        config: What is wanted.
        installed_here: The run trains here, so that its package and settings can be tried, too.

    Raises:
        ConfigError: The name is unknown, its package is missing or its settings are wrong.
    """
    TRACKERS.check_name(config.name)
    if installed_here:
        make_tracker(config)


def make_tracker(config: TrackerConfig) -> Tracker:
    """Return the tracker a configuration names; once started it can not end the run.

    Raises:
        ConfigError: The name is unknown, its package is missing or its settings are wrong.
    """
    check_tracker(config, installed_here=False)
    settings = dict(config.model_extra or {})
    if "kwargs" in settings:
        settings["kwargs"] = reveal(settings["kwargs"], "tracker.kwargs")
    own = settings_of(TrackerConfig(name=config.name, **settings))
    return SafeTracker(TRACKERS.load(config.name)(own), config.name)
