"""Makes the examples importable, each as its user would import it."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
for folder in (ROOT / "examples", ROOT / "examples" / "own_robot"):
    sys.path.insert(0, str(folder))
