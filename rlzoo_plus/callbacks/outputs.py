"""Outputs of a run's metrics whose errors cost rows, never the training."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path
from typing import Any

from stable_baselines3.common.logger import HParam, KVWriter, TensorBoardOutputFormat

from rlzoo_plus.artifacts.result import TrainResult, recorded_numbers
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)
# Of the video in TensorBoard: pictures a second, pictures, and pixels of the longer edge.
_GIF_FPS, _GIF_FRAMES, _GIF_SIZE = 10, 100, 320


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


def make_tensorboard(run_dir: RunDir) -> KVWriter | None:
    """Return an output of TensorBoard files that begins with the configuration, None without."""
    try:
        output = _open(run_dir)
        if run_dir.config_file.is_file():
            text = run_dir.config_file.read_text(encoding="utf-8")
            output.writer.add_text("config", f"```yaml\n{text}\n```")
    except OSError as error:
        log.warning("tensorboard/ cannot be written: %s; training goes on", error)
        return None
    return SafeOutput(output, "tensorboard/")


def _open(run_dir: RunDir) -> TensorBoardOutputFormat:
    output = TensorBoardOutputFormat(str(run_dir.tensorboard))
    records = output.writer.file_writer.event_writer._async_writer._writer
    # Its thread would end at the first error, and a flush then wait for it for ever.
    records._writer = _OneTryFile(records._writer, "tensorboard/")
    return output


def write_outcome(run_dir: RunDir, config: RunConfig, result: TrainResult, video: Path) -> None:
    """Add hyperparameters with the final metrics, and the video, to a run's TensorBoard files.

    What cannot be written is said; the run is finished whatever becomes of it.

    Args:
        run_dir: The run; its training has ended.
        config: Its configuration.
        result: Its outcome.
        video: A .mp4 of the best policy, which need not be there.
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
        output = _open(run_dir)
        with contextlib.closing(output):
            values = {**metrics, "hparams": HParam(_hyperparameters(config), metrics)}
            output.write(values, dict.fromkeys(values, ()), result.num_timesteps)
            if video.is_file():
                output.writer.file_writer.add_summary(_video_summary(video), result.num_timesteps)
    except Exception as error:
        log.warning("tensorboard/ lacks the outcome: %s: %s", type(error).__name__, error)


def _hyperparameters(config: RunConfig) -> dict[str, bool | str | float]:
    """Return what TensorBoard compares runs by."""
    values: dict[str, Any] = {
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
    frames[0].save(
        data, "GIF", save_all=True, append_images=frames[1:], duration=1000 // _GIF_FPS, loop=0
    )
    width, height = frames[0].size
    image = Summary.Image(
        height=height, width=width, colorspace=3, encoded_image_string=data.getvalue()
    )
    return Summary(value=[Summary.Value(tag="video/best", image=image)])


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
