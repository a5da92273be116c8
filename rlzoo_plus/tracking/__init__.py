"""Trackers: services besides TensorBoard that follow a run."""

from rlzoo_plus.tracking.safe import check_tracker, make_tracker
from rlzoo_plus.tracking.tracker import Tracker

__all__ = ["Tracker", "check_tracker", "make_tracker"]
