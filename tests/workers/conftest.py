"""Registers the tiny environments, starts commands, and makes stores."""

import support.tiny_envs  # noqa: F401
from support.processes import call, start  # noqa: F401
from support.stores import cache, folder, s3, store  # noqa: F401
