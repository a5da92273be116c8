"""Registers the tiny environments."""

import support.tiny_envs  # noqa: F401
from support.stores import cache, s3, store  # noqa: F401
