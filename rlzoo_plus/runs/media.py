"""The files that a run gets to look at: its learning curve, and videos of its policies."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from itertools import chain, islice
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.error import DependencyNotInstalled

from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont, ImageFont
    from rich.console import Console

    from rlzoo_plus.agents.policy import Policy
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig

log = logging.getLogger(__name__)

# Viewers show faster GIFs at a tenth of their pace.
FASTEST_GIF_FPS = 50
_SHADE = 0.35
_LONGEST_FPS = 30.0
_DEFAULT_FPS = 30.0


def write_media(
    console: Console, config: RunConfig, run_dir: RunDir, *, is_sweep: bool
) -> list[Path]:
    """Draw the learning curve and film the best policy; return the files.

    What cannot be drawn or filmed is said, and never fails a run that has trained.
    """
    files = []
    if config.report.plot and run_dir.evaluations_file.is_file():
        files += _try("learning curve", lambda: _plot(run_dir))
    wanted = config.report.video
    if wanted is True or (wanted == "auto" and not is_sweep and run_dir.best.is_dir()):
        console.print("recording a video of the best policy ...")
        files += _try("film", lambda: _film(config, run_dir))
    return files


def _try(what: str, make: Callable[[], Path]) -> list[Path]:
    try:
        return [make()]
    except ConfigError as error:
        log.warning("no %s: %s", what, error)
    except Exception as error:
        log.warning("no %s: %s: %s", what, type(error).__name__, error)
    return []


def _plot(run_dir: RunDir) -> Path:
    from rlzoo_plus.analysis.curves import plot_learning_curve

    out = run_dir.plots / "learning_curve.png"
    plot_learning_curve([run_dir], out)
    return out


def _film(config: RunConfig, run_dir: RunDir) -> Path:
    from rlzoo_plus.agents.loading import load_run_policy

    policy = load_run_policy(run_dir, trust=True)
    out = run_dir.videos / "best.mp4"
    film(config, [(f"{config.algo.name}, best", policy)], out, seconds=config.report.video_seconds)
    return out


def film(
    config: RunConfig,
    policies: list[tuple[str, Policy]],
    out: Path,
    *,
    seconds: float,
    seed: int = 0,
    deterministic: bool = True,
) -> int:
    """Film policies one after the other; return the number of pictures.

    Args:
        config: The run, for its environment.
        policies: What is shown in the corner before the step, and the policy.
        out: A .mp4 or .gif file.
        seconds: Length of each policy's part [s].
        seed: Which held-out episodes are played.
        deterministic: Act without exploration.

    Raises:
        ConfigError: The environment makes no pictures, or the file's ending is not known.
    """
    from rlzoo_plus.envs.seeding import held_out_seeds

    camera = Camera(config)
    seeds = held_out_seeds(100, seed)

    def pictures() -> Iterator[np.ndarray]:
        for label, policy in policies:
            text = f"{label}, step {policy.step or 0:,}"
            for picture, episode_return in camera.frames(
                policy, seeds, seconds, deterministic=deterministic
            ):
                yield caption(picture, f"{text}   return {episode_return:.0f}")

    try:
        return write_video(pictures(), out, camera.fps)
    finally:
        camera.close()


class Camera:
    """Films a policy in one environment, at the speed at which the robot moves."""

    def __init__(self, config: RunConfig) -> None:
        """Make the environment.

        Raises:
            ConfigError: It cannot make pictures.
        """
        from rlzoo_plus.envs.factory import make_eval_env, steps_alike

        try:
            self.venv = make_eval_env(config.env, 1, steps_alike(config), "rgb_array")
        except (ConfigError, AssertionError, NotImplementedError) as error:
            raise ConfigError(f"{config.env.id} makes no pictures: {error}") from error
        steps_per_second = float(self._metadata().get("render_fps") or _DEFAULT_FPS)
        # Every k-th step is shown, so that a film stays small and runs in real time.
        self.stride = max(1, round(steps_per_second / _LONGEST_FPS + 0.3))
        self.fps = steps_per_second / self.stride

    def frames(
        self, policy: Policy, seeds: list[int], seconds: float, *, deterministic: bool = True
    ) -> Iterator[tuple[np.ndarray, float]]:
        """Play episodes until the film is long enough.

        Args:
            policy: Acts on raw observations.
            seeds: Of the episodes, in order.
            seconds: Length of the film [s].
            deterministic: Act without exploration.

        Yields:
            A picture, uint8 of shape (height, width, 3), and the return of its episode so far.
        """
        from rlzoo_plus.evaluation import play

        self.venv.env_method("set_episode_seeds", seeds)
        left, episode_return = max(1, round(seconds * self.fps)), 0.0
        steps = play(policy, self.venv, deterministic=deterministic)
        for number, step in enumerate(steps):
            episode_return = 0.0 if step.done[0] else episode_return + float(step.reward[0])
            if number % self.stride == 0:
                yield self._picture(), episode_return
                left -= 1
            if not left:
                return

    def close(self) -> None:
        """Close the environment."""
        self.venv.close()

    def _metadata(self) -> dict[str, Any]:
        return dict(self.venv.get_attr("metadata")[0] or {})

    def _picture(self) -> np.ndarray:
        try:
            picture = self.venv.get_images()[0]
        except DependencyNotInstalled as error:
            raise ConfigError(
                "pictures of this environment need a package that is not installed. "
                f"For Gymnasium's classic control: pip install 'rlzoo-plus[classic]' ({error})."
            ) from error
        if picture is None:
            raise ConfigError("the environment returned no picture.")
        return np.asarray(picture)[..., :3].astype(np.uint8)


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
