"""Kill processes of environments at random moments: how fast does the run end, and go on exactly?

    python -m benchmarks.worker_deaths                 # all cases, 20 deaths each
    python -m benchmarks.worker_deaths sac --kills 5

A death is SIGKILL, as the system sends it when the memory is full. After each one the same command
is started again; in the end everything that the run holds is compared with a run without deaths.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.verification.digests import run_digests

N_ENVS = 2
# Longer than this, and the run counts as hanging [s].
HANGS_S = 60.0
COMMON = (
    "env=pendulum", "env.time_limit=40", "tuned=none", f"n_envs={N_ENVS}", "vec_env=subproc",
    "network.net_arch=[16]",
    "eval.every_steps=256", "eval.episodes=2", "eval.n_envs=2", "checkpoint.every_steps=256",
    "checkpoint.keep_best=false", "report.plot=false", "report.video=false", "device=cpu",
    "num_threads=1", "log.progress=false",
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
# Overrides, and whether the processes of the evaluation are those that die.
CASES = {"ppo": (PPO, False), "sac": (SAC, False), "ppo, evaluation": (PPO, True)}


@dataclass
class Deaths:
    """What became of the runs of a case.

    Attributes:
        ended_s: Seconds from each death to the end of its command.
        unnamed: Deaths after which the command did not name the process, or had another exit code.
        differing: Parts of the finished runs that are not those of a run without deaths.
        runs: Runs that were finished and compared.
    """

    ended_s: list[float] = field(default_factory=list)
    unnamed: int = 0
    differing: set[str] = field(default_factory=set)
    runs: int = 0


def main() -> None:
    """Kill and compare; print a table. Exit code 1 if anything was slow, unnamed or different."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--kills", type=int, default=20, help="deaths of each case (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="decides the moments (default: 0)")
    options = parser.parse_args()
    chosen = options.cases or list(CASES)
    print("| case | deaths | to the end of the command, median and longest [s] | named | exact |")
    print("|---|---|---|---|---|", flush=True)
    is_good = True
    for name in chosen:
        with tempfile.TemporaryDirectory(prefix="rlzoo-deaths-") as folder:
            found = measure(name, Path(folder), options.kills, options.seed)
        times = sorted(found.ended_s)
        exact = ", ".join(sorted(found.differing)) or f"{found.runs} of {found.runs} runs"
        print(
            f"| {name} | {len(times)} | {times[len(times) // 2]:.1f}, {times[-1]:.1f} | "
            f"{len(times) - found.unnamed} of {len(times)} | {exact} |",
            flush=True,
        )
        is_good &= times[-1] < 10.0 and not found.unnamed and not found.differing
    sys.exit(0 if is_good else 1)


def measure(name: str, folder: Path, n_kills: int, seed: int) -> Deaths:
    """Train a case without deaths, then with so many, in as many runs as that takes."""
    overrides, in_evaluation = CASES[name]
    words = [*COMMON, *overrides]
    moments, found = random.Random(f"{name} {seed}"), Deaths()
    began = time.monotonic()
    _require_end(_start(words, folder / "whole"), 0)
    usual_s = time.monotonic() - began
    expected = run_digests(RunDir(folder / "whole"))
    while len(found.ended_s) < n_kills or found.runs == 0:
        path = folder / str(found.runs)
        while RunDir(path).read_status().get("state") != "finished":
            process = _start(words, path)
            if len(found.ended_s) >= n_kills:
                _require_end(process, 0)
                continue
            ranks = range(N_ENVS, 2 * N_ENVS) if in_evaluation else range(N_ENVS)
            victim = _wait_for_worker(process, moments.choice(ranks))
            time.sleep(moments.uniform(0.0, usual_s / 3))
            if process.poll() is None and victim is not None:
                _kill(process, victim, found)
            else:
                _require_end(process, 0)
        digests = run_digests(RunDir(path))
        found.differing |= {k for k in expected | digests if expected.get(k) != digests.get(k)}
        found.runs += 1
    return found


def _kill(process: subprocess.Popen[str], victim: int, found: Deaths) -> None:
    began = time.monotonic()
    try:
        os.kill(victim, signal.SIGKILL)
    except ProcessLookupError:
        _require_end(process, 0)
        return
    try:
        _, said = process.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
    if process.returncode == 0:
        # The last moment of a run, at which nobody needed the process any more.
        return
    found.ended_s.append(time.monotonic() - began)
    lines = [line for line in said.splitlines() if line.startswith("error:")]
    is_named = len(lines) == 1 and f"(pid {victim}) was killed by SIGKILL" in lines[0]
    found.unnamed += not (is_named and process.returncode == 1 and "Traceback" not in said)


def _start(words: list[str], path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rlzoo_plus", "train", *words, f"run_dir={path}"]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=path.parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def _require_end(process: subprocess.Popen[str], code: int) -> None:
    _, said = process.communicate()
    if process.returncode != code:
        raise RuntimeError(f"exit code {process.returncode}: {said[-2000:]}")


def _wait_for_worker(process: subprocess.Popen[str], rank: int) -> int | None:
    """Return the process of an environment, training before evaluation; None at the run's end."""
    while process.poll() is None:
        workers = [w for server in _children(process.pid) for w in _children(server)]
        if len(workers) > rank:
            return sorted(workers)[rank]
        time.sleep(0.01)
    return None


def _children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    except OSError:
        return []
    return [int(word) for word in text.split()]


if __name__ == "__main__":
    main()
