"""Makes tests/support importable, and registers the tiny environments."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import support.tiny_envs  # noqa: F401
