"""What training with randomization buys: the table of docs/robots/randomization.md.

    python -m benchmarks.randomization --seeds 0 1 2 [--out FOLDER] [--steps N]

Trains the cart-pole with and without randomization, each run a process of its own with one thread,
and lets the last policies play held-out episodes in worlds that are changed in one way each. Runs
that are there already are not trained again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RANDOMIZATION = {
    "mass": {"log_uniform": [0.5, 8.0]},
    "joint_damping": {"uniform": [0.0, 0.2]},
    "latency": {"choice": [0, 1, 2, 3, 4]},
}
CHANGES: dict[str, dict[str, Any]] = {
    "none": {},
    "mass x 5": {"randomization": {"mass": 5.0}},
    "joint friction 0.15 N m s/rad": {"randomization": {"joint_damping": 0.15}},
    "latency of 4 steps": {"latency": 4},
    "mass x 3, friction 0.1, latency 3": {
        "randomization": {"mass": 3.0, "joint_damping": 0.1},
        "latency": 3,
    },
}
HEADER = """\
| changed | trained without: return | share kept | trained with: return | share kept |
|---|---|---|---|---|"""


def main() -> None:
    """Train what is missing, evaluate everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("outputs/randomization"))
    parser.add_argument("--steps", type=int, default=61440)
    parser.add_argument("--episodes", type=int, default=50)
    options = parser.parse_args()
    kinds = {"without": None, "with": RANDOMIZATION}
    returns: dict[str, dict[str, list[float]]] = {kind: {} for kind in kinds}
    for seed in options.seeds:
        for kind, randomization in kinds.items():
            run = options.out / f"{kind}-s{seed}"
            if not (run / "result.json").is_file():
                _train(run, seed, options.steps, randomization)
            for change, mean in _returns(run, options.episodes).items():
                returns[kind].setdefault(change, []).append(mean)
                print(f"seed {seed}, trained {kind}, {change}: {mean:.1f}", flush=True)
    print(HEADER)
    for change in CHANGES:
        cells = [cell for kind in kinds for cell in _cells(returns[kind], change)]
        print(f"| {' | '.join((change, *cells))} |")


def _train(run: Path, seed: int, steps: int, randomization: dict[str, Any] | None) -> None:
    arguments = ["algo=ppo", "env=cartpole_bullet", f"seed={seed}", f"run_dir={run.resolve()}"]
    arguments += [f"n_timesteps={steps}", "num_threads=1", "report.video=false"]
    arguments += ["log.progress=false", "eval.every_steps=null"]
    if randomization is not None:
        arguments.append(f"env.kwargs.randomization={_as_override(randomization)}")
    subprocess.run(
        [sys.executable, "train.py", *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.DEVNULL,
    )


def _as_override(value: Any) -> str:
    """Return a value in the grammar of Hydra's command line, whose keys bear no quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_as_override(v)}" for key, v in value.items()) + "}"
    return json.dumps(value)


def _returns(run: Path, episodes: int) -> dict[str, float]:
    """Return the mean return of a run's last policy under every change."""
    from rlzoo_plus.envs.factory import make_eval_env
    from rlzoo_plus.envs.seeding import held_out_seeds
    from rlzoo_plus.runs.run import Run
    from rlzoo_plus.training.evaluation import evaluate, one_torch_thread

    opened = Run.open(run)
    policy = opened.policy("final")
    means = {}
    for change, kwargs in CHANGES.items():
        spec = opened.config.env.model_copy(update={"kwargs": kwargs})
        with one_torch_thread(), closing(make_eval_env(spec, 10)) as venv:
            means[change] = evaluate(policy, venv, held_out_seeds(episodes)).mean_return
    return means


def _cells(returns: dict[str, list[float]], change: str) -> tuple[str, str]:
    """Return mean (lowest to highest) over seeds, and the mean share of the nominal return."""
    values, nominal = returns[change], returns["none"]
    shares = [value / whole for value, whole in zip(values, nominal, strict=True)]
    spread = f"{fmean(values):.0f} ({min(values):.0f} to {max(values):.0f})"
    return spread, f"{100 * fmean(shares):.0f}%"


if __name__ == "__main__":
    main()
