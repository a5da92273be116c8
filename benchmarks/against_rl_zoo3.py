"""Training side by side with rl_zoo3: the same algorithm, environment, steps and tuned values.

Whole processes, in turn: ours, rl_zoo3 as it comes, and rl_zoo3 with one thread. None evaluates
or films; all save their model at the end. Needs: pip install 'rlzoo-plus[bench]'

    python -m benchmarks.against_rl_zoo3 [--algo ppo] [--steps 24576] [--rounds 3]
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec

from benchmarks.processes import ONE_THREAD, ROOT, print_ratios, seconds

ENVS = {"halfcheetah_bullet": "HalfCheetahBulletEnv-v0", "reacher_bullet": "ReacherBulletEnv-v0"}


def main() -> None:
    """Measure in turn and print how many times as long rl_zoo3 takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--algo", default="ppo")
    parser.add_argument("--env", choices=sorted(ENVS), default="halfcheetah_bullet")
    parser.add_argument("--steps", type=int, default=24576)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if find_spec("rl_zoo3") is None:
        sys.exit("rl_zoo3 is not installed. Install it: pip install 'rlzoo-plus[bench]'")
    ours = [sys.executable, str(ROOT / "train.py"), f"algo={options.algo}", f"env={options.env}"]
    ours += [f"n_timesteps={options.steps}", "eval.every_steps=null", "report.plot=false"]
    ours += ["report.video=false", "log.tensorboard=false", "device=cpu"]
    zoo = [sys.executable, "-m", "rl_zoo3.train", "--algo", options.algo]
    zoo += ["--env", ENVS[options.env], "--n-timesteps", str(options.steps), "--eval-freq", "-1"]
    zoo += ["--gym-packages", "pybullet_envs_gymnasium", "--device", "cpu", "--seed", "0"]
    default_ratios, single_ratios = [], []
    for number in range(1, options.rounds + 1):
        first = seconds(ours, {})
        default, single = seconds(zoo, {}), seconds(zoo, ONE_THREAD)
        default_ratios.append(default / first)
        single_ratios.append(single / first)
        print(
            f"round {number}: ours {first:.1f} s, rl_zoo3 {default:.1f} s, "
            f"rl_zoo3 with one thread {single:.1f} s",
            flush=True,
        )
    print_ratios("rl_zoo3 as it comes / ours", default_ratios)
    print_ratios("rl_zoo3 with one thread / ours", single_ratios)


if __name__ == "__main__":
    main()
