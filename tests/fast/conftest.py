"""Registers the tiny environments; leaves these tests out where their room is deleted."""

from importlib.util import find_spec

import support.tiny_envs  # noqa: F401

collect_ignore_glob = [] if find_spec("rlzoo_plus.fast") else ["test_*.py"]
