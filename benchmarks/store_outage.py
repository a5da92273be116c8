"""What a store costs a training: PPO on cart-pole with S3 that is healthy, slow, gone, or breaks.

    python -m benchmarks.store_outage --rounds 5

Each run is a process of its own; a round has one of each kind, in another order each time. Beats
every 2 s and pushes every 5 s are 15 and 60 times as many as usual. Prints for each kind the
training's steps per second beside the run without a store of the same round (median, least, most),
the same for steps per second of CPU time, which other programs on the machine disturb less, and the
CPU time of the process that sends. Needs the extra `aws` and moto.
"""

from __future__ import annotations

import argparse
import json
import resource
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.flaky_s3 import Line, serve_flaky_s3
from benchmarks.s3_server import BUCKET

WITHOUT = "no store"
KINDS: dict[str, dict[str, Any]] = {
    WITHOUT: {},
    "healthy": {},
    "5 s a request": {"delay_s": 5.0},
    "gone all the time": {"is_gone": True},
    "each upload is reset half-way": {"breaks": True},
}
JOB = ("algo=ppo", "env=cartpole_bullet", "report.video=false", "report.plot=false")
OFTEN = {"beat_s": 2.0, "push_s": 5.0, "stall_s": 5.0}
GOAL = 0.97


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=61_440)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        _train(args.child, args.steps)
        return
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    with serve_flaky_s3() as line:
        for number in range(args.rounds):
            turn = number % len(KINDS)
            for kind in [*KINDS][turn:] + [*KINDS][:turn]:
                found[kind].append(_run(line, kind, args.steps))
                print(f"{number + 1}/{args.rounds} {kind}: {found[kind][-1]}", flush=True)
    print(f"{'store':<30} {'steps/s':>8}  {'ratio':^20}  {'by CPU time':^20}  sending, CPU")
    for kind, runs in found.items():
        rate = statistics.median(run["rate"] for run in runs)
        ratios = _ratios(runs, found[WITHOUT], "rate")
        by_cpu = _ratios(runs, found[WITHOUT], "rate_by_cpu")
        seconds = statistics.median(run["sending_s"] for run in runs)
        print(f"{kind:<30} {rate:8.0f}  {ratios}  {by_cpu}  {seconds:10.1f} s")
    print(f"goal: {GOAL} of the steps/s without a store")


def _ratios(runs: list[dict[str, Any]], without: list[dict[str, Any]], key: str) -> str:
    found = [run[key] / other[key] for run, other in zip(runs, without, strict=True)]
    return f"{statistics.median(found):6.3f} {min(found):6.3f} {max(found):6.3f}"


def _run(line: Line, kind: str, steps: int) -> dict[str, Any]:
    line.be(**KINDS[kind])
    store = "null" if kind == WITHOUT else f"{BUCKET}/lab"
    command = [sys.executable, "-m", "benchmarks.store_outage", "--steps", str(steps)]
    done = subprocess.run([*command, "--child", store], capture_output=True, text=True, check=True)
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _train(store: str, steps: int) -> None:
    """Train one run; print its rate, and the CPU time of the process that sends [s]."""
    # Imports are over before the clock starts.
    import rlzoo_plus.training.exp_manager
    from rlzoo_plus.runs.store_sync import StoreSync

    StoreSync.intervals = OFTEN
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        # The store of a round before has a run of each name that was used.
        path = f"{folder}/ppo/{secrets.token_hex(4)}"
        overrides = (*JOB, f"n_timesteps={steps}", f"run_dir={path}", f"store={store}")
        result = rlzoo_plus.train(*overrides).result
    cpu_s = time.process_time() - began
    assert result is not None
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        json.dumps(
            {
                "rate": round(result["num_timesteps"] / result["training_time_s"], 1),
                "rate_by_cpu": round(result["num_timesteps"] / cpu_s, 1),
                "sending_s": round(used.ru_utime + used.ru_stime, 2),
            }
        )
    )


if __name__ == "__main__":
    main()
