"""The display that a window needs: asked for before PyBullet is, which would kill the process."""

import os
import sys


class DisplayError(RuntimeError):
    """A window was asked for on a machine that has no display."""


def require_display() -> None:
    """Check for a display on Linux; other systems always have one.

    Raises:
        DisplayError: If there is none.
    """
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        raise DisplayError(
            "render_mode='human' needs a display, and neither DISPLAY nor WAYLAND_DISPLAY is set. "
            "Use render_mode='rgb_array', or start under a display, for example with xvfb-run."
        )
