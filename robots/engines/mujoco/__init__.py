"""MuJoCo behind the contract of ``robots.simulation``."""

import os
import sys

# Read when mujoco is imported. Without a display, only this draws.
if sys.platform.startswith("linux") and not (
    os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
):
    os.environ.setdefault("MUJOCO_GL", "egl")
