"""Outputs of a run's metrics whose errors cost rows, never the training."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import KVWriter, TensorBoardOutputFormat

log = logging.getLogger(__name__)


class SafeOutput(KVWriter):
    """Passes values on to an output; says once that it fails, and in the end what is missing."""

    def __init__(self, output: KVWriter, name: str) -> None:
        """Guard an output.

        Args:
            output: What to guard.
            name: What the warnings call it.
        """
        self._output, self._name = output, name
        self._steps_lost: list[int] = []

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0
    ) -> None:
        """Write the values of one step, if that is possible."""
        try:
            self._output.write(key_values, key_excluded, step)
        except Exception as error:
            self._lose(step, error)

    def flush(self) -> None:
        """Bring what waits in memory to the file."""
        writer = getattr(self._output, "writer", None)
        if writer is not None:
            try:
                writer.flush()
            except Exception as error:
                log.debug("%s: %s", self._name, error)

    def close(self) -> None:
        """Close the output, and say which rows it lacks."""
        try:
            self._output.close()
        except Exception as error:
            log.warning("%s could not be closed: %s", self._name, error)
        if self._steps_lost:
            first, last = self._steps_lost[0], self._steps_lost[-1]
            log.warning(
                "%s lacks rows of the steps %s to %s", self._name, f"{first:,}", f"{last:,}"
            )

    def _lose(self, step: int, error: Exception) -> None:
        if not self._steps_lost:
            log.warning("%s cannot be written: %s; training goes on", self._name, error)
        # The first and the last say all.
        self._steps_lost = [*self._steps_lost[:1], step]


def make_tensorboard(folder: Path) -> KVWriter | None:
    """Return an output of TensorBoard files, None if none can be made."""
    try:
        output = TensorBoardOutputFormat(str(folder))
        records = output.writer.file_writer.event_writer._async_writer._writer
        # Its thread would end at the first error, and a flush then wait for it for ever.
        records._writer = _OneTryFile(records._writer, "tensorboard/")
    except OSError as error:
        log.warning("tensorboard/ cannot be written: %s; training goes on", error)
        return None
    return SafeOutput(output, "tensorboard/")


class _OneTryFile:
    """A file that takes nothing after its first error: readers stop at a record cut short."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self._is_broken = False

    def write(self, data: bytes) -> None:
        self._try(lambda: self._file.write(data))

    def flush(self) -> None:
        self._try(self._file.flush)

    def close(self) -> None:
        self._try(self._file.close)

    def _try(self, action: Any) -> None:
        if self._is_broken:
            return
        try:
            action()
        except Exception as error:
            self._is_broken = True
            log.warning(
                "%s cannot be written: %s; training goes on, without what comes now",
                self._name,
                error,
            )
