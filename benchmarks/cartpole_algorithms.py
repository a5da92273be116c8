"""Every algorithm on the PyBullet cart-pole with the shipped values.

    python -m benchmarks.cartpole_algorithms --algos ppo a2c --seeds 0 1 2 [--out FOLDER]

Each run is a process of its own with one thread. Its best and its last policy then play 100
held-out episodes. Runs that are there already are not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.trained import call, evaluate, result_of

DISCRETE = ("dqn", "qrdqn")
ALGOS = (
    *("ppo", "a2c", "sac", "td3", "ddpg", "dqn"),
    *("tqc", "trpo", "crossq", "qrdqn", "ars", "recurrent_ppo"),
)
HEADER = """\
| algorithm | seed | steps | minutes | best policy | last policy | at least 95% |
|---|---|---|---|---|---|---|"""


def main() -> None:
    """Train what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algos", nargs="+", default=ALGOS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("outputs/cartpole_algorithms"))
    options = parser.parse_args()
    print(HEADER, flush=True)
    for algo in options.algos:
        for seed in options.seeds:
            run = options.out / f"{algo}-s{seed}"
            if not (run / "result.json").is_file():
                _train(algo, seed, run)
            print(_row(algo, seed, run), flush=True)


def _train(algo: str, seed: int, run: Path) -> None:
    arguments = [f"algo={algo}", "env=cartpole_bullet", f"seed={seed}", f"run_dir={run}"]
    arguments += ["env.kwargs.discrete=true"] if algo in DISCRETE else []
    call("train", *arguments, "num_threads=1", "report.video=false", "log.progress=false")


def _row(algo: str, seed: int, run: Path) -> str:
    result = result_of(run)
    best, last = (evaluate(run, which, 100) for which in ("best", "final"))
    reached = "yes" if best["mean_return"] >= 475 else "no"
    minutes = result["training_time_s"] / 60
    cells = (algo, seed, f"{result['num_timesteps']:,}", f"{minutes:.1f}")
    figures = (f"{r['mean_return']:.1f} +- {r['std_return']:.1f}" for r in (best, last))
    return f"| {' | '.join(map(str, (*cells, *figures, reached)))} |"


if __name__ == "__main__":
    main()
