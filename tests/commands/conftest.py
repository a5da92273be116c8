"""Fixtures for commands: one that is answered in this process, and runs as a process left them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.begun_runs import base, begin, make, spoil  # noqa: F401 - fixtures
