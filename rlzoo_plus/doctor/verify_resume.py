"""Trains a short version of a run whole, then killed and resumed, and compares both."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.run_list import aligned, counted
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir
from rlzoo_plus.config.catalog import get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.config.own_code import import_packages
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.config.socket_paths import keep_socket_paths_short
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.errors import USER_ERROR, ConfigError, RunError
from rlzoo_plus.training.exp_manager import ExpManager

_ROLLOUTS, _UPDATES = 8, 1000
_EVALUATIONS, _CHECKPOINTS = 4, 16
_MOST_ROUNDS = 40
_POLL_S = 0.0005


class TrialFailedError(Exception):
    """A training ended with an error of its own."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a verification."""

    expected: dict[str, str]  # Hashes of the parts of the run that was never stopped
    found: dict[str, str]  # Those of a killed run; of the first that differs, otherwise of the last
    kills: int  # How often a process was killed, over all runs
    while_writing: int  # How often while it wrote a checkpoint
    inexact_because: list[str]  # Why the run itself says that it may differ

    @property
    def is_identical(self) -> bool:
        """Whether every part is the same."""
        return self.expected == self.found

    def table(self) -> str:
        """Return the parts of both runs side by side."""
        rows = [("part", "never stopped", "killed", "")]
        for name in {**self.expected, **self.found}:
            left, right = self.expected.get(name, "-"), self.found.get(name, "-")
            rows.append((name, left, right, "same" if left == right else "DIFFERENT"))
        return "\n".join(aligned(rows))


def shortened(config: RunConfig, n_timesteps: int | None) -> RunConfig:
    """Return a short version of a configuration: same algorithm, same environments.

    Args:
        config: The run.
        n_timesteps: Its length; None for some rollouts, or some updates after learning starts.
    """
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    if n_timesteps is None:
        starts = config.algo.hyperparams.get("learning_starts")
        updates = 0 if starts is None else int(starts) + _UPDATES
        n_timesteps = min(max(_ROLLOUTS * rollout, updates), config.n_timesteps)
    every = max(n_timesteps // _EVALUATIONS, rollout)
    wanted, evaluation = config.eval.episodes, {}
    if config.eval.every_steps is not None:
        episodes = min(wanted, 2) if isinstance(wanted, int) else 2
        evaluation = {"every_steps": every, "episodes": episodes, "n_envs": episodes}
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


def _with_checkpoints(config: RunConfig, every_steps: int | None) -> RunConfig:
    """Return a configuration with checkpoints at this interval; None for only the last one."""
    settings = {"every_steps": every_steps, "every_minutes": None, "milestone_steps": None}
    if every_steps is None:
        settings["keep_best"] = False
    return config.model_copy(update={"checkpoint": config.checkpoint.model_copy(update=settings)})


def verify(
    config: RunConfig,
    folder: Path,
    *,
    kills: int,
    every_steps: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> Verdict:
    """Train a run once without a checkpoint, then killed and resumed, until killed often enough.

    Args:
        config: The run, short; see `shortened`.
        folder: Where the run directories go.
        kills: How often to kill.
        every_steps: Steps between checkpoints; None for some in a run.
        seed: Chooses the instants.
        say: Prints progress.

    Raises:
        TrialFailedError: A training ended with an error of its own.
    """
    # The fork server imports everything now, so that only training is timed below.
    process: BaseProcess = _context().Process(target=os.getpid)
    process.start()
    process.join()
    whole = RunDir(folder / "whole")
    started = time.monotonic()
    process = _start(_with_checkpoints(config, None), whole.path)
    process.join()
    _check(process, whole.path)
    training_s = float(whole.read_result()["training_time_s"])
    startup_s = max(time.monotonic() - started - training_s, 0.05)
    expected = found = run_digests(whole)
    say(f"trained in {startup_s + training_s:.1f} s without interruption")
    rollout = rollout_steps(config.algo, get_algorithm(config.algo.name), config.n_envs)
    every = every_steps or max(config.n_timesteps // _CHECKPOINTS, rollout)
    config = _with_checkpoints(config, every)
    total, writing, number, reasons = 0, 0, 0, list[str]()
    while total < kills and number < _MOST_ROUNDS and found == expected:
        path, number = folder / f"killed-{number}", number + 1
        usual_s = (startup_s, training_s)
        done = _train_with_kills(config, path, kills - total, usual_s, seed + number)
        total, writing = total + done[0], writing + done[1]
        found = run_digests(RunDir(path))
        reasons += RunDir(path).read_result()["inexact_because"]
        # If a run ended before its last kill, the next one is killed earlier.
        training_s *= 0.7
    say(
        f"killed {counted(total, 'time')} in {counted(number, 'run')}, {writing} of them while a "
        f"checkpoint was being written (one each {every:,} steps)"
    )
    return Verdict(expected, found, total, writing, list(dict.fromkeys(reasons)))


def _train_with_kills(
    config: RunConfig, path: Path, n_kills: int, usual_s: tuple[float, float], seed: int
) -> tuple[int, int]:
    """Train, kill the process at random instants, resume, until the run is finished.

    Every other kill waits until a checkpoint is being written.

    Returns:
        How often it was killed, and how often while it wrote a checkpoint.
    """
    instants = random.Random(seed)
    startup_s, training_s = usual_s
    per_kill_s = 2.0 * training_s / n_kills
    total = while_writing = 0
    while True:
        process = _start(config, path)
        if total >= n_kills:
            process.join()
            _check(process, path)
            return total, while_writing
        # Some come before training has begun, while it resumes.
        early = instants.random() < 0.2
        delay = instants.uniform(0.0, startup_s if early else startup_s + per_kill_s)
        was_writing = _wait(process, path, delay, for_writing=total % 2 == 1 and not early)
        if process.exitcode is not None:
            _check(process, path)
            return total, while_writing
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        total += 1
        while_writing += was_writing


def _wait(process: BaseProcess, path: Path, delay: float, *, for_writing: bool) -> bool:
    """Wait for a delay, then for a checkpoint if asked to; return whether one is being written."""
    deadline = time.monotonic() + delay
    # Files that an earlier kill left behind.
    before = _temporary_files(path / "checkpoints")
    while process.is_alive():
        if time.monotonic() >= deadline:
            is_writing = bool(_temporary_files(path / "checkpoints") - before)
            if is_writing or not for_writing:
                return is_writing
        time.sleep(_POLL_S)
    return False


def _temporary_files(checkpoints: Path) -> set[str]:
    """Return the incomplete files in a folder of checkpoints and its chunks."""
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
    context.set_forkserver_preload(["rlzoo_plus.runs.preload"])
    return context


def _train(data: dict[str, Any], path: str) -> None:
    """Train in this process, from the newest checkpoint if there is one."""
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
