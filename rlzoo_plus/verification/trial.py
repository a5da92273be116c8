"""A short version of a run, trained in a process of its own that can be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.socket_paths import keep_socket_paths_short
from rlzoo_plus.errors import USER_ERROR, ConfigError, RunError

_ROLLOUTS, _UPDATES = 8, 1000
_EVALUATIONS, _CHECKPOINTS = 4, 16
_POLL_S = 0.0005


class TrialFailedError(Exception):
    """A training ended with an error of its own."""


@dataclass
class Kills:
    """How the killed run was treated.

    Attributes:
        total: Times it was killed.
        while_writing: Times among them at which a checkpoint was being written.
    """

    total: int = 0
    while_writing: int = 0


def shortened(config: RunConfig, n_timesteps: int | None) -> RunConfig:
    """Return a short version of a configuration: same algorithm, same environments.

    Args:
        config: The run.
        n_timesteps: Its length; None for some rollouts, or some updates after learning starts.
    """
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    if n_timesteps is None:
        starts = int(config.algo.hyperparams.get("learning_starts", 0))
        n_timesteps = min(max(_ROLLOUTS * rollout, starts + _UPDATES), config.n_timesteps)
        if "learning_starts" not in config.algo.hyperparams:
            n_timesteps = min(_ROLLOUTS * rollout, config.n_timesteps)
    every = max(n_timesteps // _EVALUATIONS, rollout)
    wanted = config.eval.episodes
    episodes = min(wanted, 2) if isinstance(wanted, int) else 2
    evaluation = {"every_steps": every, "episodes": episodes, "n_envs": min(episodes, 2)}
    if config.eval.every_steps is None:
        evaluation = {}
    return config.model_copy(
        update={
            "n_timesteps": n_timesteps,
            "run_dir": None,
            "tracker": None,
            "eval": config.eval.model_copy(update=evaluation),
            "log": config.log.model_copy(update={"tensorboard": True, "sb3": False}),
            "export": config.export.model_copy(update={"sb3_zip": False}),
        }
    )


def with_checkpoints(config: RunConfig, every_steps: int | None) -> RunConfig:
    """Return a configuration with a checkpoint each so many steps, None for none but the last."""
    settings = {"every_steps": every_steps, "every_minutes": None, "milestone_steps": None}
    if every_steps is None:
        settings["keep_best"] = False
    return config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update=settings)})


def checkpoint_cadence(config: RunConfig) -> int:
    """Return steps between checkpoints such that a short run has some."""
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    return max(config.n_timesteps // _CHECKPOINTS, rollout)


def warm_up() -> None:
    """Import everything once, so that what is timed afterwards is training."""
    process = _context().Process(target=_nothing)
    process.start()
    process.join()


def train_through(config: RunConfig, path: Path) -> tuple[float, float]:
    """Train without interruption; return the seconds that starting and training took.

    Raises:
        TrialFailedError: It did not end well.
    """
    started = time.monotonic()
    process = _start(config, path)
    process.join()
    _check(process, path)
    training_s = float(RunDir(path).read_result()["training_time_s"])
    return max(time.monotonic() - started - training_s, 0.05), training_s


def train_with_kills(
    config: RunConfig, path: Path, n_kills: int, usual_s: tuple[float, float], seed: int
) -> Kills:
    """Train, kill the process at random instants, resume, until the run is finished.

    Every other kill waits for a checkpoint to be in the middle of being written.

    Args:
        config: The run.
        path: Its directory.
        n_kills: Times to kill at most; a run that ends earlier is not killed any more.
        usual_s: Seconds that starting and training take without interruption.
        seed: Decides the instants.

    Raises:
        TrialFailedError: It did not end well.
    """
    instants = random.Random(seed)
    startup_s, training_s = usual_s
    per_kill_s = 2.0 * training_s / n_kills
    kills = Kills()
    while True:
        process = _start(config, path)
        if kills.total >= n_kills:
            process.join()
            _check(process, path)
            return kills
        # A few come before training has begun, in the middle of resuming.
        early = instants.random() < 0.2
        delay = instants.uniform(0.0, startup_s if early else startup_s + per_kill_s)
        was_writing = _wait(process, path, delay, for_writing=kills.total % 2 == 1 and not early)
        if process.exitcode is not None:
            _check(process, path)
            return kills
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        kills.total += 1
        kills.while_writing += was_writing


def _wait(process: BaseProcess, path: Path, delay: float, *, for_writing: bool) -> bool:
    """Wait for an instant, or the first checkpoint being written after it; tell which it was."""
    deadline = time.monotonic() + delay
    # What an earlier kill left behind is not being written.
    before = _temporary_files(path / "checkpoints")
    while process.is_alive():
        if time.monotonic() >= deadline:
            is_writing = bool(_temporary_files(path / "checkpoints") - before)
            if is_writing or not for_writing:
                return is_writing
        time.sleep(_POLL_S)
    return False


def _temporary_files(checkpoints: Path) -> set[str]:
    """Return the names of what is not complete yet in a folder of checkpoints and its chunks."""
    found: set[str] = set()
    for folder in (checkpoints, checkpoints / "chunks"):
        with contextlib.suppress(OSError):
            found.update(entry.path for entry in os.scandir(folder) if entry.name.startswith("."))
    return found


def _start(config: RunConfig, path: Path) -> BaseProcess:
    process = _context().Process(target=_train, args=(config.model_dump(), str(path)))
    process.start()
    return process


def _context() -> multiprocessing.context.ForkServerContext:
    keep_socket_paths_short()
    # Forked from a server that has imported everything: a process begins in a moment.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rlzoo_plus.preload"])
    return context


def _nothing() -> None:
    """Be a process."""


def _train(data: dict[str, Any], path: str) -> None:
    """Train in this process, from the newest checkpoint if there is one."""
    from rlzoo_plus.config.own_code import import_packages
    from rlzoo_plus.runs.exp_manager import ExpManager

    config = RunConfig.model_validate(data)
    import_packages(config)
    run_dir = RunDir(Path(path))
    if not run_dir.has_begun():
        run_dir.path.mkdir(parents=True, exist_ok=True)
        run_dir.start(data, "rlzoo-plus verify-resume", {})
    try:
        ExpManager(config, run_dir).train()
    except (ConfigError, RunError):
        # status.json has the reason.
        sys.exit(USER_ERROR)


def _check(process: BaseProcess, path: Path) -> None:
    status = RunDir(path).read_status()
    state = status.get("state")
    if process.exitcode != 0 or state != FINISHED:
        message = str(status.get("message") or "").rstrip(".")
        reason = f": {message}" if message else ""
        raise TrialFailedError(
            f"the training in {path} ended with exit code {process.exitcode}, state {state}{reason}"
        )
