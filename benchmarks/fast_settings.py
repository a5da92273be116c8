"""Whether `fast` is faster for what the package ships: tuned values, through the command line.

    nice -n 19 python -m benchmarks.fast_settings [ALGO:ENV ...] [--fast true|bfloat16]

Each cell trains exactly and with `fast` in turn, each a short and a longer run with one thread;
what the short one takes is start-up, and taken away from the longer. Prints steps a second and
their ratio. Exits with 1 if a ratio is below 0.8: nearer to 1, one round is too noisy to tell.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.trained import call, result_of
from rlzoo_plus.config.catalog import Family, get_algorithm
from rlzoo_plus.config.hyperparams import rollout_steps
from rlzoo_plus.runs.load import load

ROBOTS = (  # on MuJoCo, which is faster: less of the time is physics
    *("cartpole_bullet", "cartpole_swingup", "double_pendulum", "kuka_reach", "a1_walk"),
    *("a1_walk_free", "vision60_walk", "husky_drive", "husky_avoid", "racecar_drive"),
    *("racecar_avoid", "halfcheetah", "franka_push", "franka_push_around", "franka_lift"),
)
CELLS = (
    *(f"ppo:{env}" for env in ROBOTS if env != "franka_push"),
    *("sac:a1_walk_free", "sac:cartpole_bullet", "td3:cartpole_bullet", "her:franka_push"),
    *(f"{algo}:halfcheetah_bullet" for algo in ("ppo", "a2c", "sac", "td3", "tqc", "ddpg")),
)
LEARNS_FROM, UPDATED = 256, 1_024  # off-policy: steps before learning, and steps with it
ROLLED_OUT = 16_384  # on-policy: steps after the first rollout, or else two rollouts
LEAST = 0.8


def main() -> int:
    """Train each cell and print a table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cells", nargs="*", default=CELLS, metavar="ALGO:ENV")
    parser.add_argument("--fast", default="true", choices=["true", "bfloat16"])
    options = parser.parse_args()
    print(f"| cell | exact [steps/s] | fast={options.fast} [steps/s] | ratio |\n|---|---|---|---|")
    slow = []
    for cell in options.cells:
        exact, fast = (_speed(cell, setting) for setting in ("false", options.fast))
        if fast < LEAST * exact:
            slow.append(cell)
        print(f"| {cell} | {exact:,.0f} | {fast:,.0f} | {fast / exact:.2f} |", flush=True)
    print(f"below {LEAST}: {', '.join(slow)}" if slow else f"none is below {LEAST}")
    return 1 if slow else 0


def _speed(cell: str, fast: str) -> float:
    """Return the steps a second of a training after its start."""
    algo, _, env = cell.partition(":")
    overrides = [
        f"algo={algo}",
        f"env={env}",
        f"fast={fast}",
        "num_threads=1",
        "log.progress=false",
    ]
    overrides += ["eval.every_steps=null", "report.video=false", "report.plot=false"]
    overrides += ["env.kwargs.engine=mujoco"] if env in ROBOTS else []
    config, spec = load(overrides), get_algorithm(algo)
    rollout = rollout_steps(config.algo, spec, config.n_envs)
    if spec.family is Family.ON_POLICY:
        lengths = rollout, rollout * (1 + max(2, ROLLED_OUT // rollout))
    else:
        overrides.append(f"algo.hyperparams.learning_starts={LEARNS_FROM}")
        start = LEARNS_FROM + max(rollout, 64)
        lengths = start, start + UPDATED
    short, whole = (_seconds([*overrides, f"n_timesteps={length}"]) for length in lengths)
    return (lengths[1] - lengths[0]) / (whole - short)


def _seconds(overrides: list[str]) -> float:
    """Return how long a training takes [s]."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        call("train", *overrides, f"run_dir={run}")
        return float(result_of(run)["training_time_s"])


if __name__ == "__main__":
    sys.exit(main())
