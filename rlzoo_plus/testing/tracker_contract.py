"""The contract of every tracker, checked on what it has stored."""

from __future__ import annotations

import contextlib
import logging
import math
import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlzoo_plus.tracking.safe import SafeTracker
from rlzoo_plus.tracking.tracker import Tracker

CONFIG = {
    "algo": {"name": "ppo", "hyperparams": {"gamma": 0.99, "net_arch": [64, 64]}},
    "normalize": None,
    "many": {f"key{index}": index for index in range(120)},
    "long": "x" * 7000,
}
RESULT = {"best": {"return": 12.5}, "reason": "n_timesteps reached"}


class TrackerContract:
    """The suite for trackers that can store a run without a network.

    The fixture `tracker` returns a new one, `read` what it has stored.
    """

    @pytest.fixture
    def tracker(self) -> Tracker:
        """Return the tracker."""
        raise NotImplementedError("give the suite a fixture `tracker`")

    def read(self, run_dir: Path) -> dict[str, Any]:
        """Return what was stored of a run.

        Returns:
            `metrics` as (name, value, step), `summary` by name, `files` as a set of names,
            `state` (running, finished or failed), and `error`, None if there is none.
        """
        raise NotImplementedError("give the suite a method `read`")

    @pytest.fixture
    def run_dir(self, tmp_path: Path) -> Path:
        """Return a run directory with a configuration and a plot."""
        return make_run_dir(tmp_path)

    def test_what_is_logged_can_be_read_back(
        self, tracker: Tracker, run_dir: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_network(self: socket.socket, address: Any) -> None:
            assert self.family == socket.AF_UNIX, f"offline, yet a connection to {address}"
            return connect(self, address)

        connect = socket.socket.connect
        monkeypatch.setattr(socket.socket, "connect", no_network)
        tracker.start(CONFIG, run_dir)
        tracker.log({"rollout/ep_rew_mean": -3.5, "time/fps": 250}, step=2048)
        tracker.log({"rollout/ep_rew_mean": 1.5}, step=4096)
        tracker.log({"eval/mean_reward": 2.0}, step=4000)
        files = [run_dir / "config.yaml", run_dir / "plots" / "returns.png", run_dir / "absent.mp4"]
        tracker.finish(RESULT, files)

        stored = self.read(run_dir)
        returns = {("rollout/ep_rew_mean", -3.5, 2048), ("rollout/ep_rew_mean", 1.5, 4096)}
        others = {("time/fps", 250, 2048), ("eval/mean_reward", 2.0, 4000)}
        assert returns | others <= set(stored["metrics"])
        assert stored["summary"]["result/best/return"] == 12.5
        assert stored["summary"]["result/reason"] == "n_timesteps reached"
        assert stored["files"] == {"config.yaml", "plots/returns.png"}
        assert (stored["state"], stored["error"]) == ("finished", None)

    def test_a_failed_run_says_why(self, tracker: Tracker, run_dir: Path) -> None:
        tracker.start(CONFIG, run_dir)
        tracker.log({"train/loss": math.nan}, step=1)
        tracker.fail("interrupted by SIGTERM")
        stored = self.read(run_dir)
        assert (stored["state"], stored["error"]) == ("failed", "interrupted by SIGTERM")

    def test_nothing_runs_on_after_the_end(self, tracker: Tracker, run_dir: Path) -> None:
        threads, children = set(threading.enumerate()), _children()
        tracker.start(CONFIG, run_dir)
        tracker.log({"train/loss": 1.0}, step=1)
        tracker.finish({}, [])
        assert set(threading.enumerate()) <= threads
        assert _children() <= children

    def test_failing_before_the_start_is_allowed(self, tracker: Tracker) -> None:
        tracker.fail("broke early")

    def test_a_broken_service_is_left_with_one_warning(
        self,
        tracker: Tracker,
        run_dir: Path,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def broken(metrics: Any, step: int) -> None:
            raise ConnectionError("http://user:secret@host is gone\nreally")

        monkeypatch.setattr(tracker, "log", broken)
        monkeypatch.setattr(tracker, "start", lambda config, run_dir: None)
        safe = SafeTracker(tracker, "some")
        safe.start({}, run_dir)
        with caplog.at_level(logging.WARNING, logger="rlzoo_plus.tracking"):
            safe.log({"a": 1.0}, 1)
            safe.log({"a": 1.0}, 2)
            safe.finish({}, [])
        messages = [record.getMessage() for record in caplog.records]
        assert messages == [
            "tracker=some stopped working (ConnectionError: http://***@host is gone really). "
            "The run continues without it."
        ]


def make_run_dir(parent: Path) -> Path:
    """Make a run directory with a configuration and a plot."""
    folder = parent / "run with space-s0"
    (folder / "plots").mkdir(parents=True)
    (folder / "config.yaml").write_text("seed: 0\n")
    image = pytest.importorskip("matplotlib.image")
    image.imsave(folder / "plots" / "returns.png", np.array([[0.0, 1.0]]))
    return folder


def _children() -> set[str]:
    """Return the process ids of this process's children."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("counting child processes needs /proc")
    found: set[str] = set()
    for task in tasks.iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update((task / "children").read_text().split())
    return found
