"""What the manager costs: a run of ours against the same training written by hand with SB3.

Both train PPO on the PyBullet cart-pole with the same values and one thread, as whole processes
in turn. Ours evaluates nothing here, but keeps its records: metrics, monitor files, TensorBoard,
a checkpoint and a bundle.

    python -m benchmarks.against_sb3 [--rounds 5] [--steps 20480]
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.processes import ONE_THREAD, ROOT, print_ratios, seconds

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
    """Measure in turn and print the ratio of each round."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20480)
    options = parser.parse_args()
    ours = [sys.executable, str(ROOT / "train.py"), f"n_timesteps={options.steps}"]
    ours += ["eval.every_steps=null", "report.plot=false", "report.video=false", "device=cpu"]
    by_hand = [sys.executable, "-c", BY_HAND.format(steps=options.steps)]
    ratios = []
    for number in range(1, options.rounds + 1):
        first, second = seconds(ours, ONE_THREAD), seconds(by_hand, ONE_THREAD)
        ratios.append(first / second)
        print(f"round {number}: ours {first:.1f} s, by hand {second:.1f} s", flush=True)
    print_ratios("ours / by hand", ratios)


if __name__ == "__main__":
    main()
