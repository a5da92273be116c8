"""Registers the tiny environments."""

import support.tiny_envs  # noqa: F401
