"""Registers the tiny environments; fixtures: runs as a process left them."""

import support.tiny_envs  # noqa: F401
from support.begun_runs import base, begin, make, spoil  # noqa: F401 - fixtures
