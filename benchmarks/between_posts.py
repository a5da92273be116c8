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

import numpy as np

from benchmarks.driving_by_hand import drive_between_posts
from benchmarks.trained import evaluate, result_of, train_seeds
from rlzoo_plus.config.schema import EnvConfig
from rlzoo_plus.demonstrations.dataset import Dataset, Demonstration
from rlzoo_plus.demonstrations.minari_format import is_dataset, write_dataset
from rlzoo_plus.envs.single import make_env
from rlzoo_plus.policies.entries import stacked
from rlzoo_plus.runs.load import load

ENV = "env=husky_avoid"
EPISODES, FIRST_SEED = 1200, 20_000
# The push: what is left of it after a step, and how much is new at most.
LEFT, NEW = 0.8, 0.12
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
        write_dataset(data, played())
    cloned = train_seeds(folder / "cloned", seeds, workers, [*COMMON, *CLONING, f"data={data}"])
    print("| seed | cloned | then PPO | minutes |\n|---|---|---|---|", flush=True)
    for seed, source in zip(seeds, cloned, strict=True):
        words = [*COMMON, *TRAINING, f"init_from={source}"]
        (run,) = train_seeds(folder / f"trained_{seed}", [seed], 1, words)
        minutes = sum(result_of(one)["training_time_s"] for one in (source, run)) / 60
        cells = " | ".join(map(_score, (source, run)))
        print(f"| {seed} | {cells} | {minutes:.1f} |", flush=True)


def played() -> Dataset:
    """Return the successful episodes of the controller."""
    spec: EnvConfig = load([ENV]).env
    env, rng, episodes = make_env(spec), np.random.default_rng(0), []
    for seed in range(FIRST_SEED, FIRST_SEED + EPISODES):
        observation, info = env.reset(seed=seed)
        seen, actions, rewards = [observation], [], []
        push, strength = np.zeros(2), NEW * rng.uniform()
        terminated = truncated = False
        while not (terminated or truncated):
            action = np.clip(drive_between_posts(observation), -1, 1).astype(np.float32)
            push = LEFT * push + strength * rng.normal(size=2)
            given = np.clip(action + push, -1, 1).astype(np.float32)
            observation, reward, terminated, truncated, info = env.step(given)
            seen.append(observation)
            actions.append(action)
            rewards.append(float(reward))
        if info["is_success"]:
            row = (stacked(seen), np.stack(actions), np.array(rewards), bool(terminated), seed)
            episodes.append(Demonstration(*row))
    about = {"dataset_id": f"{spec.name}/by-hand-v0", "algorithm_name": "a controller by hand"}
    found = Dataset(env.observation_space, env.action_space, episodes, about)
    env.close()
    return found


def _score(run: Path) -> str:
    played: dict[str, Any] = evaluate(run, "best", 100)
    return f"{played['mean_return']:.1f}, {played['success_rate']:.0%}"


if __name__ == "__main__":
    main()
