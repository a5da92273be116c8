"""How long `sweep status` and `ls` take for a sweep of thousands of runs in S3.

    .venv/bin/python -m benchmarks.store_status --runs 3000

Serves S3 with moto on this machine. The runs are simulated: one submission, and for each run the
record that its worker would have written. Measured are whole processes, with their requests: the
first call, the same again, and again after a beat of each running worker. Needs the extra `aws`
and moto.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.processes import ONE_THREAD, ROOT
from benchmarks.s3_server import BUCKET, serve_s3

STORE = f"{BUCKET}/lab"
_SEEDS = 100


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    args = parser.parse_args()
    with serve_s3(args.latency_ms / 1e3) as requests, tempfile.TemporaryDirectory() as cache:
        os.environ |= {"XDG_CACHE_HOME": cache, "PYTHONPATH": str(ROOT), **ONE_THREAD}
        keys = _submit(args.runs)
        _beat(list(enumerate(keys)), beat=1)
        for verb in (["sweep", "status", f"{STORE}/big"], ["ls", STORE]):
            requests.new()
            for what in ("first", "again", "after beats"):
                if what == "after beats":
                    running = [(n, key) for n, key in enumerate(keys) if _state(n) == "running"]
                    _beat(running, beat=2 + len(verb))
                    requests.new()
                took, cpu = _timed(verb)
                print(
                    f"{verb[0]:<6}{what:<12}{took:6.2f} s ({cpu:.2f} s of CPU here), "
                    f"{requests.new():,} requests",
                    flush=True,
                )


def _submit(n_runs: int) -> list[str]:
    """Submit jobs that differ in `gamma` and in their seeds; return their keys."""
    from rlzoo_plus import __version__
    from rlzoo_plus.runs.load import load
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.submissions import Submissions
    from rlzoo_plus.sweeps.sweep_job import make_job

    config = load(["algo=ppo", "env=cartpole_bullet", "sweep=big"])
    jobs = []
    for number in range(n_runs):
        gamma = 0.9 + number // _SEEDS / 10_000
        hyperparams = {**config.algo.hyperparams, "gamma": gamma}
        algo = config.algo.model_copy(update={"hyperparams": hyperparams})
        varied = config.model_copy(update={"algo": algo, "seed": number % _SEEDS})
        command = f"rlzoo-plus train algo=ppo env=cartpole_bullet seed={varied.seed}"
        jobs.append(make_job(varied, f"{command} algo.hyperparams.gamma={gamma}"))
    records = [{"event": "added", **job.record()} for job in jobs]
    about = {"version": __version__, "code": None}
    Submissions(open_store(STORE), "big").add(records, about)
    return [job.key for job in jobs]


def _state(number: int) -> str:
    return (*["finished"] * 6, *["running"] * 3, "failed")[number % 10]


def _beat(runs: Sequence[tuple[int, str]], beat: int) -> None:
    """Write the record of each run, as its worker does."""
    from rlzoo_plus.store.contract import open_store

    store = open_store(STORE)
    with ThreadPoolExecutor(32) as pool:
        for _ in pool.map(
            lambda run: store.put(f"live/big/{run[1]}.json", _record(*run, beat)), runs
        ):
            pass


def _record(number: int, key: str, beat: int) -> bytes:
    evaluation = {
        **{"step": 40_960, "mean_return": 100.0 + number % 97, "std_return": 3.0},
        **{"iqm_return": 101.0, "success_rate": 1.0},
    }
    state = _state(number)
    record: dict[str, Any] = {
        **{"format": 1, "worker": f"host-{number % 40}-0123456789abcdef", "beat": beat},
        **{"state": state, "env": "cartpole_bullet", "algo": "ppo", "seed": number % _SEEDS},
        **{"n_timesteps": 100_000, "config_hash": key.rpartition("/")[2].partition("-")[0]},
        **{"steps": 50_000 + beat, "rate": 1234.5, "evaluation": evaluation},
    }
    if state == "finished":
        record |= {"best": evaluation, "final": evaluation, "training_time_s": 81.0, "exact": True}
    if state == "failed":
        record |= {"reason": "killed by SIGKILL", "code": -9}
    return json.dumps(record).encode()


def _timed(words: list[str]) -> tuple[float, float]:
    """Run a command; return its wall-clock time and its time of the processor [s]."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "rlzoo_plus", *words]
    with subprocess.Popen(command, cwd=Path(os.environ["XDG_CACHE_HOME"]), stdout=-3) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
