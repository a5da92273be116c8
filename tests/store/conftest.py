"""Makes tests/support importable, registers the tiny environments, and starts commands."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import support.tiny_envs  # noqa: F401
from support.processes import call, start  # noqa: F401
