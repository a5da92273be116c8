"""What a compiled module prints, kept: PyBullet says only there why it cannot load a file."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from types import TracebackType

# The head of each of PyBullet's messages: the file and line of its own source.
_HEAD = re.compile(r"b3\w+\[[^\]]*\]:")


class NativeOutput:
    """Takes the place of the process's output and errors for a while; not for several threads.

    Attributes:
        lines: What was printed, each line once, complete after the end.
    """

    def __init__(self) -> None:
        """Prepare."""
        self.lines: list[str] = []
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._saved: dict[int, int] = {}

    def __enter__(self) -> NativeOutput:
        """Begin to keep."""
        self._saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
        for descriptor in self._saved:
            os.dup2(self._file.fileno(), descriptor)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give the output back, and read what was kept."""
        # The text may still be in the buffer of the C library.
        ctypes.CDLL(None).fflush(None)
        for descriptor, copy in self._saved.items():
            os.dup2(copy, descriptor)
            os.close(copy)
        self._file.seek(0)
        text = self._file.read().decode(errors="replace")
        self._file.close()
        parts = (part.strip() for part in _HEAD.sub("\n", text).splitlines())
        self.lines = list(dict.fromkeys(part for part in parts if part))
