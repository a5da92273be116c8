"""Trackers: services besides TensorBoard that follow a run."""

from rlzoo_plus.tracking.base import Tracker
from rlzoo_plus.tracking.safe import check_tracker, make_tracker

__all__ = ["Tracker", "check_tracker", "make_tracker"]
