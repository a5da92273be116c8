"""What the manager costs: a run of ours against the same training written by hand with SB3.

Both train PPO on the PyBullet cart-pole with the same values and the same number of threads, as
whole processes, one after the other in turn, so that a busy machine slows both. Ours also
evaluates nothing here, but keeps its records: metrics, monitor files, a checkpoint, a bundle.

    python -m benchmarks.against_sb3 [--pairs 5] [--steps 20480]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BY_HAND = """
import torch
torch.set_num_threads(1)
import gymnasium, robots
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
venv = make_vec_env("robots/CartPoleBalance-v0", n_envs=8, seed=0)
agent = PPO("MlpPolicy", venv, n_steps=128, batch_size=64, n_epochs=10, gamma=0.99,
            learning_rate=lambda remaining: 1e-3 * remaining, seed=0, device="cpu")
agent.learn({steps})
agent.save("model.zip")
"""


def main() -> None:
    """Measure in turn and print the ratio pair by pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20480)
    options = parser.parse_args()
    ours = [sys.executable, str(ROOT / "train.py"), f"n_timesteps={options.steps}"]
    ours += ["eval.every_steps=null", "report.plot=false", "report.video=false", "device=cpu"]
    by_hand = [sys.executable, "-c", BY_HAND.format(steps=options.steps)]
    ratios = []
    for pair in range(options.pairs):
        first, second = _seconds(ours), _seconds(by_hand)
        ratios.append(first / second)
        print(f"pair {pair + 1}: ours {first:.1f} s, by hand {second:.1f} s, {ratios[-1]:.2f}")
    low, high = min(ratios), max(ratios)
    print(f"ours / by hand: median {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")


def _seconds(command: list[str]) -> float:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started


if __name__ == "__main__":
    main()
