"""Films of frames: mp4 through PyAV, gif through Pillow, and captions on frames."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont

# Viewers show faster GIFs at a tenth of their pace.
FASTEST_GIF_FPS = 50
_SHADE = 0.35


def write_video(frames: Iterable[np.ndarray], path: Path, fps: float) -> int:
    """Write a film in one step: the file is there whole, or not at all.

    An odd width or height, which H.264 does not know, is made even by repeating the last column
    or row. A GIF above `FASTEST_GIF_FPS` leaves frames out and so keeps its pace.

    Args:
        frames: Pictures of one size, uint8, shape (height, width, 3); read one at a time.
        path: The file; `.mp4` or `.gif` decides the format.
        fps: Frames a second.

    Returns:
        The number of frames written.

    Raises:
        ConfigError: The suffix is not known, `fps` is not above 0, or there is no frame.
        ValueError: A frame has another size or type than the rule says.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        known = " or ".join(WRITERS)
        raise ConfigError(f"{path}: films end in {known}, not in {path.suffix!r}. Rename it.")
    if not 0 < fps < float("inf"):
        raise ConfigError(f"{path}: fps={fps} is not above 0. Set it to e.g. 30.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A link that someone laid there must not lead the film elsewhere.
    temporary.unlink(missing_ok=True)
    try:
        n_frames = writer(_checked(frames), temporary, fps)
        if n_frames == 0:
            raise ConfigError(f"{path}: there is no frame to write. Film at least one step.")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return n_frames


def caption(frame: np.ndarray, text: str) -> np.ndarray:
    """Return a copy of a frame with a line of text on a darkened strip at its lower edge.

    Args:
        frame: A picture, uint8, shape (height, width, 3).
        text: One line; it is set smaller, then cut, where it is too long.
    """
    from PIL import Image, ImageDraw

    height, width = frame.shape[:2]
    size = max(12, height // 22)
    line, font = _fit(" ".join(text.splitlines()), width, size)
    strip = min(height, round(size * 1.6))
    picture = np.array(frame, copy=True)
    picture[height - strip :] = (picture[height - strip :] * _SHADE).astype(np.uint8)
    image = Image.fromarray(picture)
    middle = (strip // 3, height - strip / 2)
    ImageDraw.Draw(image).text(middle, line, fill=(255, 255, 255), font=font, anchor="lm")
    return np.array(image)


def _fit(text: str, width: int, size: int) -> tuple[str, FreeTypeFont | ImageFont]:
    """Return the text and the font that fit into a width [px], from a size [px] downwards."""
    from PIL.ImageFont import load_default

    for smaller in range(size, 8, -1):
        font = load_default(smaller)
        if font.getlength(text) <= width - smaller:
            return text, font
    font = load_default(9)
    while text and font.getlength(text + "...") > width - 9:
        text = text[:-1]
    return text + "...", font


def _checked(frames: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    first: tuple[int, ...] | None = None
    for number, frame in enumerate(frames):
        shape, first = frame.shape, first or frame.shape
        if frame.dtype != np.uint8 or len(shape) != 3 or shape[2] != 3 or shape != first:
            raise ValueError(
                f"frame {number} has shape {shape} and type {frame.dtype}; give uint8 frames of"
                f" shape (height, width, 3), all like the first one: {first}"
            )
        yield frame


def _write_mp4(frames: Iterator[np.ndarray], path: Path, fps: float) -> int:
    import av

    first = next(frames, None)
    if first is None:
        return 0
    n_frames = 0
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        rate = Fraction(fps).limit_denominator(1000)
        stream = container.add_stream("libx264", rate=rate, options={"crf": "20"})
        stream.height, stream.width = _even(first).shape[:2]
        stream.pix_fmt = "yuv420p"
        for frame in chain([first], frames):
            picture = av.VideoFrame.from_ndarray(_even(frame), format="rgb24")
            container.mux(stream.encode(picture))
            n_frames += 1
        container.mux(stream.encode())
    return n_frames


def _write_gif(frames: Iterator[np.ndarray], path: Path, fps: float) -> int:
    from PIL import Image

    stride = ceil(fps / FASTEST_GIF_FPS)
    images = [Image.fromarray(frame).quantize() for frame in islice(frames, 0, None, stride)]
    if images:
        duration_ms = round(1000 * stride / fps)
        options = {"save_all": True, "append_images": images[1:], "loop": 0}
        images[0].save(path, format="GIF", duration=duration_ms, **options)
    return len(images)


def _even(frame: np.ndarray) -> np.ndarray:
    height, width = frame.shape[:2]
    if height % 2 or width % 2:
        frame = np.pad(frame, ((0, height % 2), (0, width % 2), (0, 0)), mode="edge")
    return np.ascontiguousarray(frame)


WRITERS: dict[str, Callable[[Iterator[np.ndarray], Path, float], int]] = {
    ".mp4": _write_mp4,
    ".gif": _write_gif,
}
