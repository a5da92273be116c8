"""Registers the tiny environments, and starts commands."""

import support.tiny_envs  # noqa: F401
from support.processes import call, start  # noqa: F401
from support.stores import cache, folder, store  # noqa: F401
