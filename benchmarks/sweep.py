"""A sweep side by side with rl_zoo3: eight PPO trainings on CartPole-v1, two at a time.

In turn: our sweep with two workers; rl_zoo3 in two processes with one thread each, its best
case; and rl_zoo3 in two processes as it comes. The same steps, seeds and tuned values; none
evaluates or films; all save their models. Needs: pip install 'rlzoo-plus[bench]'

    python -m benchmarks.sweep [--jobs 8] [--steps 20000] [--rounds 3] [--no-defaults]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from benchmarks.processes import ONE_THREAD, ROOT, print_ratios, seconds

AT_ONCE = 2


def main() -> None:
    """Measure in turn and print how many times as long rl_zoo3 takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit-s", type=float, default=900.0, help="end rl_zoo3 after so long")
    parser.add_argument("--no-defaults", action="store_true", help="leave its defaults out")
    options = parser.parse_args()
    if find_spec("rl_zoo3") is None:
        sys.exit("rl_zoo3 is not installed. Install it: pip install 'rlzoo-plus[bench]'")
    ratios: dict[str, list[float]] = {"with one thread": [], "as it comes": []}
    for number in range(1, options.rounds + 1):
        ours = seconds(_ours(options.jobs, options.steps), {})
        line = f"round {number}: ours {ours:.1f} s"
        for name, environment in (("with one thread", ONE_THREAD), ("as it comes", {})):
            if options.no_defaults and not environment:
                continue
            theirs, is_over = _zoo(options.jobs, options.steps, environment, options.limit_s)
            ratios[name].append(theirs / ours)
            line += f", rl_zoo3 {name} {'' if is_over else 'more than '}{theirs:.1f} s"
        print(line, flush=True)
    for name, found in ratios.items():
        if found:
            print_ratios(f"rl_zoo3 {name} / ours", found)


def _ours(jobs: int, steps: int) -> list[str]:
    command = [sys.executable, str(ROOT / "train.py"), "-m", "algo=ppo", "env=cartpole"]
    command += [f"seed=range(0,{jobs})", f"infra.workers={AT_ONCE}", f"n_timesteps={steps}"]
    command += ["eval.every_steps=null", "report.plot=false", "log.tensorboard=false"]
    return [*command, "device=cpu"]


def _zoo(
    jobs: int, steps: int, environment: Mapping[str, str], limit_s: float
) -> tuple[float, bool]:
    """Run rl_zoo3's jobs, two at a time; return the time [s] and whether all of them ended."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:

        def job(seed: int) -> bool:
            left = limit_s - (time.perf_counter() - started)
            return left > 0 and _zoo_job(seed, steps, Path(folder), variables, left)

        ended = list(pool.map(job, range(jobs)))
    return time.perf_counter() - started, all(ended)


def _zoo_job(
    seed: int, steps: int, folder: Path, variables: Mapping[str, str], limit_s: float
) -> bool:
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", "CartPole-v1"]
    command += ["--n-timesteps", str(steps), "--eval-freq", "-1", "--device", "cpu"]
    # A folder each: two runs that start together would otherwise take the same number.
    command += ["--seed", str(seed), "--log-folder", str(folder / f"logs{seed}")]
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=variables,
            check=True,
            timeout=limit_s,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False
    return True


if __name__ == "__main__":
    main()
