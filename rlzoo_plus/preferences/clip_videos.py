"""Videos of clips: their episodes are played again from the reset, with the same actions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.errors import ConfigError
from rlzoo_plus.policies.episode import Episode
from rlzoo_plus.policies.replay import play_again
from rlzoo_plus.preferences.clips import Clip, Clips
from rlzoo_plus.runs.run import Run
from rlzoo_plus.training.media import real_time, rendered, write_video


class ClipVideos:
    """Draws clips in the order in which they are asked for, in a thread of its own.

    Pictures of some engines are drawn only by the thread that has made the environment.
    """

    def __init__(self, folder: Path, clips: Clips, run: Run) -> None:
        """Draw clips of a run; the videos are kept in a folder."""
        self._folder, self._clips, self._run = folder, clips, run
        self._venv: Any = None
        self._asked: dict[int, Future[Path]] = {}
        self._thread = ThreadPoolExecutor(1)

    def ask(self, clip: int) -> Future[Path]:
        """Let a clip be drawn; the result is its file, or a ConfigError that says why not."""
        if clip not in self._asked:
            self._asked[clip] = self._thread.submit(self._draw, clip)
        return self._asked[clip]

    def close(self) -> None:
        """Draw nothing more."""
        self._thread.submit(lambda: self._venv and self._venv.close())
        self._thread.shutdown()

    def _draw(self, clip: int) -> Path:
        path = self._folder / f"{self._clips.digest}-{clip:05d}.gif"
        if not path.is_file() or path.is_symlink():
            if self._venv is None:
                self._venv = self._run.env(1, "rgb_array")
            stride, fps = real_time(self._venv)
            write_video(self._frames(self._clips.clips[clip], stride), path, fps)
        return path

    def _frames(self, clip: Clip, stride: int) -> Iterator[np.ndarray]:
        """Yield the pictures of a clip; its episode is played again up to there."""
        played = Episode(
            seed=clip.seed, actions=clip.actions, rewards=clip.own_rewards, terms={}, values=None,
            digests=np.zeros(0), value_kind=None, last_observation=None, end_reason="",
            terminated=False, success=None,
        )  # fmt: skip
        start = len(clip.own_rewards) - len(clip.rows)
        with contextlib.closing(play_again(played, self._venv)) as steps:
            for number, step in enumerate(steps):
                if float(step.reward) != clip.own_rewards[number]:
                    raise ConfigError("an episode comes out otherwise here: record clips again.")
                # The picture after the last step of an episode shows the next one.
                if number >= start and (number - start) % stride == 0 and step.end is None:
                    yield rendered(self._venv)
