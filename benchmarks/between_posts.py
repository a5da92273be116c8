"""The Husky between posts: cloned from a controller made by hand, then trained on by PPO.

    nice -n 19 python -m benchmarks.between_posts [--seeds 0 1 2] [--workers 1] [--out FOLDER]

The controller plays episodes in which something pushes its actions aside, so that it shows how to
come back; the successful ones are cloned. Prints, for each seed, mean return and success of the
best policy of both steps in 100 held-out episodes. What is there already is not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks.demonstrations import played
from benchmarks.driving_by_hand import drive_between_posts
from benchmarks.trained import evaluate, result_of, train_seeds
from rlzoo_plus.demonstrations.minari_format import is_dataset, write_dataset

ENV = "env=husky_avoid"
EPISODES, FIRST_SEED = 1200, 20_000
PUSH = 0.12
COMMON = (ENV, "tuned=none", "network.net_arch=[128,128]", "normalize=false", "report.video=false")
CLONING = (
    *("algo=bc", "n_timesteps=4000000", "eval.every_steps=1000000", "eval.episodes=100"),
    *("algo.hyperparams.n_steps=100000", "algo.hyperparams.batch_size=512"),
    "algo.hyperparams.learning_rate=lin_1e-3",
)
TRAINING = (
    *("algo=ppo", "n_envs=16", "fast=true", "n_timesteps=327680"),
    *("eval.every_steps=32768", "eval.episodes=100", "algo.hyperparams.learning_rate=lin_1e-4"),
    *("algo.hyperparams.n_steps=512", "algo.hyperparams.batch_size=1024"),
    *("algo.hyperparams.n_epochs=5", "algo.hyperparams.gamma=0.99"),
)


def main() -> None:
    """Train what is missing, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("outputs/between_posts"))
    options = parser.parse_args()
    folder = options.out.resolve()
    data, seeds, workers = folder / "data", options.seeds, options.workers
    if not is_dataset(data):
        played_seeds = range(FIRST_SEED, FIRST_SEED + EPISODES)
        write_dataset(data, played([ENV], drive_between_posts, played_seeds, push=PUSH))
    cloned = train_seeds(folder / "cloned", seeds, workers, [*COMMON, *CLONING, f"data={data}"])
    print("| seed | cloned | then PPO | minutes |\n|---|---|---|---|", flush=True)
    for seed, source in zip(seeds, cloned, strict=True):
        words = [*COMMON, *TRAINING, f"init_from={source}"]
        (run,) = train_seeds(folder / f"trained_{seed}", [seed], 1, words)
        minutes = sum(result_of(one)["training_time_s"] for one in (source, run)) / 60
        cells = " | ".join(map(_score, (source, run)))
        print(f"| {seed} | {cells} | {minutes:.1f} |", flush=True)


def _score(run: Path) -> str:
    played: dict[str, Any] = evaluate(run, "best", 100)
    return f"{played['mean_return']:.1f}, {played['success_rate']:.0%}"


if __name__ == "__main__":
    main()
