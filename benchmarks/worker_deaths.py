"""Kill processes of environments at random moments: how fast does the run end, and go on exactly?

    python -m benchmarks.worker_deaths                 # all cases, 20 deaths each
    python -m benchmarks.worker_deaths sac --kills 5

A death is SIGKILL, as the system sends it when the memory is full. After each one the run goes on
from its last checkpoint; in the end everything that it holds is compared with a run without deaths.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.envs.subproc import ProcessVecEnv
from rlzoo_plus.errors import RunError
from rlzoo_plus.training.exp_manager import ExpManager

COMMON = (
    "env=pendulum", "env.time_limit=40", "tuned=none", "n_envs=2", "vec_env=subproc",
    "network.net_arch=[16]", "eval.every_steps=256", "eval.episodes=2", "eval.n_envs=2",
    "checkpoint.every_steps=256", "checkpoint.keep_best=false", "device=cpu", "num_threads=1",
)  # fmt: skip
PPO = (
    "algo=ppo", "n_timesteps=3072", "algo.hyperparams.n_steps=64",
    "algo.hyperparams.batch_size=32", "algo.hyperparams.n_epochs=2",
)  # fmt: skip
SAC = (
    "algo=sac", "n_timesteps=1536", "algo.hyperparams.learning_starts=128",
    "algo.hyperparams.batch_size=16", "algo.hyperparams.buffer_size=8000",
    "algo.hyperparams.train_freq=8", "algo.hyperparams.gradient_steps=2",
)  # fmt: skip
# Overrides, and whose processes die: those that were made first train, the others evaluate.
CASES = {"ppo": (PPO, 0), "sac": (SAC, 0), "ppo, evaluation": (PPO, 1)}


@dataclass
class Deaths:
    """What became of the runs of a case.

    Attributes:
        ended_s: Seconds from each death to the end of its run.
        unnamed: Deaths after which the reason did not name the process.
        left: Processes of environments that outlived their run.
        differing: Parts of the finished runs that are not those of a run without deaths.
        runs: Runs that were finished and compared.
    """

    ended_s: list[float] = field(default_factory=list)
    unnamed: int = 0
    left: int = 0
    differing: set[str] = field(default_factory=set)
    runs: int = 0


class Killer(threading.Thread):
    """Kills one process of a run, a random time after its environments were made."""

    def __init__(self, which: int, rank: int, delay_s: float) -> None:
        """Kill environment `rank` of the first or second vectorised environment that is made."""
        super().__init__(daemon=True)
        self._which, self._rank, self._delay_s = which, rank, delay_s
        self.made: list[Any] = []
        self.victim: int | None = None
        self.killed_at = 0.0
        self._is_over = threading.Event()

    def run(self) -> None:
        """Wait and kill."""
        while len(self.made) <= self._which:
            if self._is_over.wait(0.001):
                return
        if self._is_over.wait(self._delay_s):
            return
        self.victim = self.made[self._which].processes[self._rank].pid
        self.killed_at = time.monotonic()
        # A run that has just ended took its processes along.
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.victim, signal.SIGKILL)

    def end(self) -> None:
        """Kill nothing any more."""
        self._is_over.set()
        self.join()


def main() -> None:
    """Kill and compare; print a table. Exit code 1 if anything was slow, unnamed or different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--kills", type=int, default=20, help="deaths of each case (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (default: 0)")
    options = parser.parse_args()
    print(
        "| case | deaths | to the end of the run, median and longest [s] | named | left | exact |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    is_good = True
    for name in options.cases or list(CASES):
        with tempfile.TemporaryDirectory(prefix="rlzoo-deaths-") as folder:
            found = measure(name, Path(folder), options.kills, options.seed)
        times = sorted(found.ended_s)
        exact = ", ".join(sorted(found.differing)) or f"{found.runs} of {found.runs} runs"
        print(
            f"| {name} | {len(times)} | {times[len(times) // 2]:.2f}, {times[-1]:.2f} | "
            f"{len(times) - found.unnamed} of {len(times)} | {found.left} | {exact} |",
            flush=True,
        )
        is_good &= times[-1] < 10.0 and not (found.unnamed or found.left or found.differing)
    sys.exit(0 if is_good else 1)


def measure(name: str, folder: Path, n_kills: int, seed: int) -> Deaths:
    """Train a case without deaths, then with so many, in as many runs as that takes."""
    overrides, which = CASES[name]
    config = _compose([*COMMON, *overrides])
    moments, found = random.Random(f"{name} {seed}"), Deaths()
    began = time.monotonic()
    whole = _new_run(folder / "whole", config)
    ExpManager(config, whole).train()
    usual_s, expected = time.monotonic() - began, run_digests(whole)
    while len(found.ended_s) < n_kills:
        run_dir = _new_run(folder / str(found.runs), config)
        while run_dir.read_status().get("state") != "finished":
            more = len(found.ended_s) < n_kills
            delay_s = moments.uniform(0.0, usual_s / 3) if more else 1e9
            _train(config, run_dir, Killer(which, moments.randrange(2), delay_s), found)
        digests = run_digests(run_dir)
        found.differing |= {k for k in expected | digests if expected.get(k) != digests.get(k)}
        found.runs += 1
    return found


def _train(config: RunConfig, run_dir: RunDir, killer: Killer, found: Deaths) -> None:
    """Train until the end or a death, and write down what became of it."""
    start = ProcessVecEnv.__init__

    def noticed(venv: Any, makers: Any) -> None:
        start(venv, makers)
        killer.made.append(venv)

    ProcessVecEnv.__init__ = noticed  # type: ignore[method-assign]
    killer.start()
    try:
        ExpManager(config, run_dir).train()
    except RunError as error:
        found.ended_s.append(time.monotonic() - killer.killed_at)
        found.unnamed += f"(pid {killer.victim}) was killed by SIGKILL" not in str(error)
    finally:
        killer.end()
        ProcessVecEnv.__init__ = start  # type: ignore[method-assign]
    processes = [process for venv in killer.made for process in venv.processes]
    found.left += sum(process.is_alive() for process in processes)


def _new_run(path: Path, config: RunConfig) -> RunDir:
    path.mkdir()
    run_dir = RunDir(path)
    run_dir.start(config.model_dump(mode="json"), "python -m benchmarks.worker_deaths", {})
    return run_dir


def _compose(overrides: list[str]) -> RunConfig:
    from rlzoo_plus.runs.load import load

    return load(overrides)


if __name__ == "__main__":
    main()
