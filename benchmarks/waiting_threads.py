"""How long idle threads of PyTorch should wait before they sleep: alone and beside other programs.

    python -m benchmarks.waiting_threads [--beside 4] [--rounds 3] [--passes 300]

Times a forward and backward pass of a critic (32 inputs, 400 and 300 units, batches of 256) on two
threads with GNU OpenMP's own GOMP_SPINCOUNT, with the one that a training sets, and on one thread:
processes in turn, while `--beside` other processes compute. Prints medians on the clock with the
lowest and the highest.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from rlzoo_plus.fast.startup import SPINS

CASES = {
    "2 threads, GNU OpenMP's own": (2, {}),
    f"2 threads, {SPINS[1]} looks": (2, dict([SPINS])),
    "1 thread": (1, {}),
}
_BUSY = "while True: pass"


def main() -> None:
    """Time each case in turn, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--beside", type=int, default=0, help="other processes that compute")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--passes", type=int, default=300)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads is not None:
        print(_time_passes(options.threads, options.passes))
        return
    found: dict[str, list[float]] = {name: [] for name in CASES}
    with ExitStack() as stack:
        for _ in range(options.beside):
            busy = stack.enter_context(subprocess.Popen([sys.executable, "-c", _BUSY]))
            stack.callback(busy.kill)
        for _ in range(options.rounds):
            for name, (threads, environ) in CASES.items():
                found[name].append(_run(threads, environ, options.passes))
    print(f"{options.beside} processes beside it, {os.cpu_count()} cores")
    print("| case | ms a pass |\n|---|---|")
    for name, times in found.items():
        spread = f"{statistics.median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
        print(f"| {name} | {spread} |")


def _run(threads: int, environ: dict[str, str], passes: int) -> float:
    command = [sys.executable, "-m", "benchmarks.waiting_threads"]
    command += ["--threads", str(threads), "--passes", str(passes)]
    usual = {name: value for name, value in os.environ.items() if name != SPINS[0]}
    done = subprocess.run(command, env=usual | environ, check=True, capture_output=True, text=True)
    return float(done.stdout)


def _time_passes(threads: int, passes: int) -> float:
    """Return the time of a forward and backward pass [ms]."""
    import torch

    torch.set_num_threads(threads)
    layers = [torch.nn.Linear(32, 400), torch.nn.ReLU(), torch.nn.Linear(400, 300)]
    critic = torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(300, 1))
    batch = torch.randn(256, 32)
    for number in range(passes + 20):
        if number == 20:  # Warm.
            began = time.perf_counter()
        critic.zero_grad()
        critic(batch).mean().backward()
    return 1000.0 * (time.perf_counter() - began) / passes


if __name__ == "__main__":
    main()
