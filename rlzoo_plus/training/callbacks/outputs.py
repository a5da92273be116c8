"""Where training metrics go: metrics.jsonl, TensorBoard, a tracker, and the terminal on request.

An output that fails costs rows, never the training.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import (
    HParam,
    HumanOutputFormat,
    KVWriter,
    Logger,
    TensorBoardOutputFormat,
)

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.result import TrainResult, recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import LogConfig, RunConfig
from rlzoo_plus.envs.monitor import is_number
from rlzoo_plus.tracking import Tracker

log = logging.getLogger(__name__)
# The video in TensorBoard: images a second, images, and pixels of the longer edge.
_GIF_FPS, _GIF_FRAMES, _GIF_SIZE = 10, 100, 320
_Values = dict[str, Any]


def make_logger(config: LogConfig, run_dir: RunDir, tracker: Tracker | None) -> Logger:
    """Return the logger that a Stable-Baselines3 algorithm writes its metrics to."""

    def append(values: dict[str, float], step: int) -> None:
        record = {"ts": time.time(), "step": step}
        rows = [{**record, "key": k, "value": v, "tags": {}} for k, v in values.items()]
        append_records(run_dir.metrics_file, rows)

    outputs: list[KVWriter] = [SafeOutput(NumberWriter(append), run_dir.metrics_file.name)]
    tensorboard = _make_tensorboard(run_dir) if config.tensorboard else None
    if tensorboard is not None:
        outputs.append(tensorboard)
    if tracker is not None:
        outputs.append(NumberWriter(tracker.log))
    if config.sb3:
        outputs.append(SafeOutput(HumanOutputFormat(sys.stdout), "log.sb3=true"))
    return RunLogger(folder=str(run_dir.path), output_formats=outputs)


class RunLogger(Logger):
    """A logger that can hold its rows back, until one of an earlier step has been written."""

    _held: list[tuple[_Values, _Values, int]] | None = None

    def dump(self, step: int = 0) -> None:
        """Write a row, or keep it for `release`."""
        if self._held is None:
            super().dump(step)
            return
        self._held.append((dict(self.name_to_value), dict(self.name_to_excluded), step))
        for values in (self.name_to_value, self.name_to_count, self.name_to_excluded):
            values.clear()

    def hold(self) -> None:
        """Hold rows back from now on."""
        self._held = []

    def release(self, *, write: bool = True) -> None:
        """Write the rows that were held back, or drop them; hold back no more."""
        rows, self._held = self._held or (), None
        for values, excluded, step in rows if write else ():
            for output in self.output_formats:
                output.write(values, excluded, step)


class NumberWriter(KVWriter):
    """Passes numbers and their step to a function."""

    def __init__(self, write: Callable[[dict[str, float], int], None]) -> None:
        self._write = write

    def write(self, key_values: _Values, key_excluded: _Values, step: int = 0) -> None:
        """Pass on the numbers of one step, sorted by name."""
        numbers = ((key, value) for key, value in sorted(key_values.items()) if is_number(value))
        self._write({key: float(value) for key, value in numbers}, step)

    def close(self) -> None:
        """Nothing is open: a file is opened for each write, and trackers are closed elsewhere."""


class SafeOutput(KVWriter):
    """Passes values on to an output; warns once that it fails, and at the end what is missing."""

    def __init__(self, output: KVWriter, name: str) -> None:
        """Guard an output; `name` is for the warnings."""
        self._output, self._name = output, name
        self._steps_lost: list[int] = []

    def write(self, key_values: _Values, key_excluded: _Values, step: int = 0) -> None:
        """Write the values of one step, if that is possible."""
        try:
            self._output.write(key_values, key_excluded, step)
        except Exception as error:
            if not self._steps_lost:
                log.warning("%s cannot be written: %s; training goes on", self._name, error)
            # The first and the last are enough.
            self._steps_lost = [*self._steps_lost[:1], step]

    def flush(self) -> None:
        """Write what waits in memory to the file."""
        writer = getattr(self._output, "writer", None)
        if writer is not None:
            try:
                writer.flush()
            except Exception as error:
                log.debug("%s: %s", self._name, error)

    def close(self) -> None:
        """Close the output, and warn which rows it lacks."""
        try:
            self._output.close()
        except Exception as error:
            log.warning("%s could not be closed: %s", self._name, error)
        if self._steps_lost:
            steps = f"{self._steps_lost[0]:,} to {self._steps_lost[-1]:,}"
            log.warning("%s lacks rows of the steps %s", self._name, steps)


def _make_tensorboard(run_dir: RunDir) -> KVWriter | None:
    """Return an output of TensorBoard files that begins with the configuration, None without."""
    try:
        output = _open_tensorboard(run_dir)
        if run_dir.config_file.is_file():
            text = run_dir.config_file.read_text(encoding="utf-8")
            output.writer.add_text("config", f"```yaml\n{text}\n```")
    except OSError as error:
        log.warning("tensorboard/ cannot be written: %s; training goes on", error)
        return None
    return SafeOutput(output, "tensorboard/")


def _open_tensorboard(run_dir: RunDir) -> TensorBoardOutputFormat:
    output = TensorBoardOutputFormat(str(run_dir.tensorboard))
    file: Any = output.writer.file_writer
    records = file.event_writer._async_writer._writer
    # Its thread would end at the first error, and a flush would then never return.
    records._writer = _OneTryFile(records._writer, "tensorboard/")
    return output


def write_outcome(run_dir: RunDir, config: RunConfig, result: TrainResult, video: Path) -> None:
    """Add hyperparameters with the final metrics, and the video, to a run's TensorBoard files.

    `video` is an .mp4 of the best policy, which may be missing. An error is a warning: the run is
    finished without them.
    """
    records = {"best": result.best, "final": result.final}
    metrics = {
        f"result/{name}_{key}": value
        for name, record in records.items()
        if record is not None
        for key, value in recorded_numbers(record).items()
        if key in ("mean_return", "success_rate")
    }
    try:
        with contextlib.closing(_open_tensorboard(run_dir)) as output:
            if metrics:
                values = {**metrics, "hparams": HParam(_hyperparameters(config), metrics)}
                output.write(values, dict.fromkeys(values, ()), result.num_timesteps)
            if video.is_file():
                file: Any = output.writer.file_writer
                file.add_summary(_video_summary(video), result.num_timesteps)
    except Exception as error:
        log.warning("tensorboard/ lacks the outcome: %s: %s", type(error).__name__, error)


def _hyperparameters(config: RunConfig) -> dict[str, bool | str | float]:
    values: _Values = {
        "algo": config.algo.name,
        "env": config.env.name,
        **{f"algo.{key}": value for key, value in config.algo.hyperparams.items()},
        **{f"network.{key}": value for key, value in config.network.model_dump().items()},
        **{key: getattr(config, key) for key in ("n_timesteps", "n_envs", "seed")},
        "normalize": config.normalize is not None,
    }
    return {
        key: value if isinstance(value, (bool, int, float, str)) else str(value)
        for key, value in values.items()
        if value not in (None, {}, [])
    }


def _video_summary(video: Path) -> Any:
    """Return a video as an animated GIF, which TensorBoard shows; its own encoder is not needed."""
    import av
    from PIL import Image
    from tensorboard.compat.proto.summary_pb2 import Summary

    with av.open(str(video)) as file:
        stream = file.streams.video[0]
        stride = max(1, round(float(stream.average_rate or _GIF_FPS) / _GIF_FPS))
        frames = [
            Image.fromarray(frame.to_ndarray(format="rgb24"))
            for number, frame in enumerate(file.decode(stream))
            if number % stride == 0 and number < stride * _GIF_FRAMES
        ]
    for frame in frames:
        frame.thumbnail((_GIF_SIZE, _GIF_SIZE))
    data = io.BytesIO()
    options = {"append_images": frames[1:], "duration": 1000 // _GIF_FPS, "loop": 0}
    frames[0].save(data, "GIF", save_all=True, **options)
    width, height = frames[0].size
    gif = data.getvalue()
    image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
    return Summary(value=[Summary.Value(tag="video/best", image=image)])


class _OneTryFile:
    """A file that takes nothing after its first error: readers stop at an incomplete record."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self._is_broken = False

    def write(self, data: bytes) -> None:
        self._try(self._file.write, data)

    def flush(self) -> None:
        self._try(self._file.flush)

    def close(self) -> None:
        self._try(self._file.close)

    def _try(self, action: Any, *arguments: Any) -> None:
        if self._is_broken:
            return
        try:
            action(*arguments)
        except Exception as error:
            self._is_broken = True
            log.warning(
                "%s cannot be written: %s; training goes on, without what comes now",
                self._name, error,
            )  # fmt: skip
