"""Fixtures: runs as a process left them."""

from support.begun_runs import base, begin, make, spoil  # noqa: F401 - fixtures
