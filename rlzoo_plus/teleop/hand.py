"""What a page and the loop of its task tell each other: controls, requests, pictures, the score."""

from __future__ import annotations

import io
import threading
import time
from collections import deque
from typing import Any

import numpy as np
from PIL import Image

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.teleop.controls import Controls

REQUESTS = ("play", "pause", "keep", "discard")
# A page that is open says how things stand 25 times a second [s].
_SILENT_S = 0.5
_QUALITY = 80
_MOST_REQUESTS = 8


class Hand:
    """The person at the controls, as the loop sees it; its methods may be called by any thread.

    Attributes:
        controls: What can be moved.
    """

    def __init__(self, controls: Controls) -> None:
        """Begin with nobody there."""
        self.controls = controls
        self._changed = threading.Condition()
        self._values, self._told_at = controls.at_rest, float("-inf")
        self._requests: deque[str] = deque(maxlen=_MOST_REQUESTS)
        self._picture, self._number = b"", 0
        self._shown: dict[str, Any] = {}

    def move(self, values: Any) -> dict[str, Any]:
        """Take the values of the controls; return what the page shows.

        Raises:
            ValueError: They are none.
        """
        checked = self.controls.checked(values)
        with self._changed:
            self._values, self._told_at = checked, time.monotonic()
            return {**self._shown, "picture": self._number}

    def request(self, word: Any) -> None:
        """Ask the loop for something.

        Raises:
            ValueError: It does not know that.
        """
        if word not in REQUESTS:
            raise ValueError("there is no such request")
        with self._changed:
            self._requests.append(word)
            self._changed.notify_all()

    def picture(self) -> bytes:
        """Return the newest picture, a JPEG.

        Raises:
            ConfigError: There is none yet.
        """
        with self._changed:
            if not self._picture:
                raise ConfigError("there is no picture yet.")
            return self._picture

    def values(self) -> list[float] | None:
        """Return the newest values of the controls; None if nobody is there any more."""
        with self._changed:
            is_silent = time.monotonic() - self._told_at > _SILENT_S
            return None if is_silent else self._values

    def next_request(self, wait_s: float = 0.0) -> str | None:
        """Return the oldest request, waiting for one as long as that; None without."""
        with self._changed:
            if not self._requests and wait_s > 0:
                self._changed.wait(wait_s)
            return self._requests.popleft() if self._requests else None

    def show(self, **shown: Any) -> None:
        """Change what the page shows."""
        with self._changed:
            self._shown = {**self._shown, **shown}

    def show_picture(self, frame: np.ndarray) -> None:
        """Show a picture, uint8 of shape (height, width, 3)."""
        file = io.BytesIO()
        Image.fromarray(frame).save(file, "JPEG", quality=_QUALITY)
        with self._changed:
            self._picture, self._number = file.getvalue(), self._number + 1
