"""The commands' fixtures, and the supports of all tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
