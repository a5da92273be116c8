"""Pictures side by side in one PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.inspection.play import start_and_later


def make_picture(spec: EnvConfig, path: Path) -> None:
    """Write a picture of an environment: at the start, and after random actions.

    Args:
        spec: What to make.
        path: The file; it ends in .png.

    Raises:
        ConfigError: The environment draws no pictures, or the file cannot be written.
    """
    from PIL import Image

    from rlzoo_plus.runs.media import caption

    check_path(path)
    env = make_env(spec, render_mode="rgb_array")
    try:
        pictures = start_and_later(env)
    except (ValueError, NotImplementedError) as error:
        raise ConfigError(f"--picture: {spec.id} draws no picture: {error}.") from error
    finally:
        env.close()
    row = np.hstack([caption(frame, words) for words, frame in pictures])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(path)
    except OSError as error:
        raise ConfigError(f"--picture {path} cannot be written: {error}.") from error


def check_path(path: Path) -> None:
    """Refuse a file that would not hold a picture, before time is spent.

    Raises:
        ConfigError: It does not end in .png, or is a folder.
    """
    if path.suffix.lower() != ".png" or path.is_dir():
        raise ConfigError(f"--picture {path} is no .png file. Name one: --picture inspect.png")
