"""The plot and the videos of a run: records a policy, writes frames as `.mp4` or `.gif`."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from rlzoo_plus.agents.policy import load_run_policy
from rlzoo_plus.analysis.curves import plot_learning_curve
from rlzoo_plus.envs.factory import make_eval_env, steps_alike
from rlzoo_plus.envs.seeding import held_out_seeds
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.training.evaluation import play
from robots.simulation import RendererError

if TYPE_CHECKING:
    from rich.console import Console
    from stable_baselines3.common.vec_env import VecEnv

    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)

# Viewers play faster GIFs at a tenth of their rate.
FASTEST_GIF_FPS = 50
_USUAL_FPS = 30.0
_MOST_CHANNELS = 4


def write_media(
    console: Console, config: RunConfig, run_dir: RunDir, *, is_sweep: bool
) -> list[Path]:
    """Plot the learning curve and record the best policy; return the files.

    A failure is logged as a warning: it must not fail a run that has trained.
    """

    def plot() -> Path:
        out = run_dir.plots / "learning_curve.png"
        plot_learning_curve([run_dir], out)
        return out

    def video() -> Path:
        console.print("recording a video of the best policy ...")
        policies = [(f"{config.algo.name}, best", load_run_policy(run_dir, trust=True))]
        out = run_dir.videos / "best.mp4"
        record_video(config, policies, out, seconds=config.report.video_seconds)
        return out

    makers: dict[str, Callable[[], Path]] = {}
    if config.report.plot and run_dir.evaluations_file.is_file():
        makers["learning curve"] = plot
    wanted = config.report.video
    if wanted is True or (wanted == "auto" and not is_sweep and run_dir.best.is_dir()):
        makers["video"] = video
    files = []
    for what, make in makers.items():
        try:
            files.append(make())
        except ConfigError as error:
            log.warning("no %s: %s", what, error)
        except Exception as error:
            log.warning("no %s: %s: %s", what, type(error).__name__, error)
    return files


def record_video(
    config: RunConfig,
    policies: list[tuple[str, Policy]],
    out: Path,
    *,
    seconds: float,
    seed: int = 0,
    deterministic: bool = True,
) -> int:
    """Record policies one after the other, in real time; return the number of frames.

    Args:
        config: The run, for its environment.
        policies: Each with its label, which is shown before the step.
        out: A .mp4 or .gif file.
        seconds: Length of each policy's part [s].
        seed: Chooses the held-out episodes that are played.
        deterministic: Act without exploration.

    Raises:
        ConfigError: The environment renders no images, or the file's suffix is not known.
    """
    with contextlib.closing(make_rendering_env(config)) as venv:
        stride, fps = real_time(venv)
        n_steps = (max(1, round(seconds * fps)) - 1) * stride + 1

        def frames() -> Iterator[np.ndarray]:
            for label, policy in policies:
                venv.env_method("set_episode_seeds", held_out_seeds(100, seed))
                text, episode_return = f"{label}, step {policy.step or 0:,}", 0.0
                steps = islice(play(policy, venv, deterministic=deterministic), n_steps)
                for number, step in enumerate(steps):
                    episode_return = 0.0 if step.done[0] else episode_return + float(step.reward[0])
                    if number % stride == 0:
                        yield caption(rendered(venv), f"{text}   return {episode_return:.0f}")

        return write_video(frames(), out, fps)


def make_rendering_env(config: RunConfig) -> VecEnv:
    """Return one environment of a run, as evaluations see it, that renders images.

    Raises:
        ConfigError: It cannot be made, or renders none.
    """
    try:
        return make_eval_env(config.env, 1, steps_alike(config), "rgb_array")
    except (ConfigError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"{config.env.id} renders no images: {error}") from error


def steps_per_second(venv: VecEnv) -> float:
    """Return the rate of a task's steps in its own time [1/s]; 30 if it does not say."""
    metadata = venv.get_attr("metadata")[0] or {}
    return float(metadata.get("render_fps") or _USUAL_FPS)


def real_time(venv: VecEnv) -> tuple[int, float]:
    """Return which steps a video shows, every k-th, and its frames per second.

    It plays in real time, and stays small.
    """
    rate = steps_per_second(venv)
    stride = max(1, round(rate / _USUAL_FPS + 0.3))
    return stride, rate / stride


def rendered(venv: VecEnv) -> np.ndarray:
    """Return an image of the first environment, uint8 of shape (height, width, 3).

    Raises:
        ConfigError: It renders none.
    """
    try:
        image = venv.get_images()[0]
    except DependencyNotInstalled as error:
        raise ConfigError(
            "rendering this environment needs a package that is not installed. "
            f"For Gymnasium's classic control: pip install 'rlzoo-plus[classic]' ({error})."
        ) from error
    except RendererError as error:
        # On MuJoCo, known when the first picture is drawn.
        raise ConfigError(str(error)) from error
    return as_frame(image)


def as_frame(image: Any) -> np.ndarray:
    """Return what an environment rendered as uint8 of shape (height, width, 3).

    Of a list of images, the last; grey ones, of shape (height, width) or (height, width, 1), get
    three channels, and an alpha channel is dropped. Floats in [0, 1] and bools are scaled to 255,
    other numbers clipped to [0, 255].

    Raises:
        ConfigError: It is no image.
    """
    if isinstance(image, list | tuple) and image and np.ndim(image[-1]) in (2, 3):
        newest = np.asarray(image[-1])
        # The rows of one image have a last dimension of at most four channels.
        if newest.ndim == 3 or newest.shape[-1] > _MOST_CHANNELS:
            image = newest
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or array.dtype.kind not in "biuf":
        what = "nothing" if image is None else f"an array of shape {array.shape}"
        raise ConfigError(
            f"render() of the environment returned {what}, and no image. Let it return uint8 of "
            "shape (height, width, 3)."
        )
    array = np.broadcast_to(array, (*array.shape[:2], 3)) if array.shape[2] == 1 else array[..., :3]
    if array.dtype.kind in "fb" and array.size and np.nanmax(array) <= 1.0:
        array = array * 255.0
    if array.dtype != np.uint8:
        array = np.clip(np.nan_to_num(array), 0, 255)
    return array.astype(np.uint8)


def write_video(frames: Iterable[np.ndarray], path: Path, fps: float) -> int:
    """Write a video in one step: the file is there whole, or not at all.

    An odd width or height, which H.264 does not support, is made even by repeating the last column
    or row. A GIF above `FASTEST_GIF_FPS` drops frames to keep its speed.

    Args:
        frames: Images of one size, uint8, shape (height, width, 3); read one at a time.
        path: The file; `.mp4` or `.gif` decides the format.
        fps: Frames per second.

    Returns:
        The number of frames written.

    Raises:
        ConfigError: The suffix is not known, `fps` is not above 0, or there is no frame.
        ValueError: A frame has another size or type.
    """
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        known = " or ".join(WRITERS)
        raise ConfigError(f"{path}: videos end in {known}, not in {path.suffix!r}. Rename it.")
    if not 0 < fps < float("inf"):
        raise ConfigError(f"{path}: fps={fps} is not above 0. Set it to e.g. 30.")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A link that someone put there must not lead the video elsewhere.
    temporary.unlink(missing_ok=True)
    try:
        n_frames = writer(_checked(frames), temporary, fps)
        if n_frames == 0:
            raise ConfigError(f"{path}: there is no frame to write. Record at least one step.")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return n_frames


def caption(frame: np.ndarray, text: str) -> np.ndarray:
    """Return a copy of a frame with a line of text on a darkened strip at its lower edge.

    Args:
        frame: An image, uint8, shape (height, width, 3).
        text: One line; where it is too long, the font gets smaller, then the text is cut.
    """
    from PIL import Image, ImageDraw
    from PIL.ImageFont import load_default

    height, width = frame.shape[:2]
    largest = max(12, height // 22)
    line = " ".join(text.splitlines())
    for size in range(largest, 8, -1):
        font = load_default(size)
        if font.getlength(line) <= width - size:
            break
    else:
        while line and font.getlength(line + "...") > width - 9:
            line = line[:-1]
        line += "..."
    strip = min(height, round(largest * 1.6))
    captioned = np.array(frame, copy=True)
    captioned[height - strip :] = (captioned[height - strip :] * 0.35).astype(np.uint8)
    image = Image.fromarray(captioned)
    middle = (strip // 3, height - strip / 2)
    ImageDraw.Draw(image).text(middle, line, fill=(255, 255, 255), font=font, anchor="lm")
    return np.array(image)


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


# What `repeatable` adds to the settings of x264.
X264: dict[str, str] = {}
ONE_WAY = {"threads": "1"}
if platform.machine() in ("x86_64", "AMD64"):
    # Its code for newer processors gives other bytes each time on some of them.
    ONE_WAY["x264-params"] = "asm=sse2"


@contextlib.contextmanager
def repeatable() -> Iterator[None]:
    """Write videos here so that the same frames always give the same bytes; slower."""
    X264.update(ONE_WAY)
    try:
        yield
    finally:
        X264.clear()


def _write_mp4(frames: Iterator[np.ndarray], path: Path, fps: float) -> int:
    import av

    first = next(frames, None)
    if first is None:
        return 0
    n_frames = 0
    with av.open(str(path), "w", format="mp4", options={"movflags": "faststart"}) as container:
        rate = Fraction(fps).limit_denominator(1000)
        stream = container.add_stream("libx264", rate=rate, options={"crf": "20", **X264})
        stream.height, stream.width = _even(first).shape[:2]
        stream.pix_fmt = "yuv420p"
        for frame in chain([first], frames):
            image = av.VideoFrame.from_ndarray(_even(frame), format="rgb24")
            container.mux(stream.encode(image))
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
