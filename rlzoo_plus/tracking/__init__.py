"""Trackers: services besides TensorBoard that follow a run."""

from rlzoo_plus.tracking.base import Tracker
from rlzoo_plus.tracking.registry import make_tracker

__all__ = ["Tracker", "make_tracker"]
