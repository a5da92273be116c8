"""A population against a study of Optuna, with as many environment steps.

    nice -n 19 python -m benchmarks.populations [--seeds 0 1 2 3 4] [--steps N] [--out FOLDER]

PPO learns to swing a pole up, without tuned values. Each way trains eight times the steps of a run:
eight members, eight trials at full length, and trials of which Optuna's pruner ends some early.
What has been trained is not trained again. Prints the return of the best policy of each over 100
held-out episodes, and the steps that were trained.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.trained import call, evaluate, result_of

MEMBERS, SEGMENTS = 8, 8
TASK = (
    *("algo=ppo", "env=cartpole_swingup", "env.kwargs.engine=mujoco", "tuned=none", "n_envs=16"),
    *("algo.hyperparams.n_steps=64", "hpo=ppo"),
    *("report.video=false", "report.plot=false", "num_threads=1"),
)
PRUNED_TRIALS = 12


def main() -> None:
    """Train what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--steps", type=int, default=49_152)
    parser.add_argument("--out", type=Path, default=Path("outputs/populations"))
    options = parser.parse_args()
    ways: dict[str, tuple[tuple[str, ...], Callable[[Path], Path]]] = {
        "a population of 8": (
            (
                "hpo.sampler=pbt",
                f"hpo.sampler_options={{population: {MEMBERS}, segments: {SEGMENTS}}}",
            ),
            _best_member,
        ),
        "8 trials": ((f"hpo.n_trials={MEMBERS}", "hpo.pruner=none"), _best_trial),
        f"{PRUNED_TRIALS} trials, pruned": ((f"hpo.n_trials={PRUNED_TRIALS}",), _best_trial),
    }
    print("| | return, each seed | steps, each seed |\n|---|---|---|", flush=True)
    for name, (settings, best_of) in ways.items():
        returns, steps = [], []
        for seed in options.seeds:
            study = options.out.resolve() / name.replace(" ", "_").replace(",", "") / str(seed)
            _train(study, seed, options.steps, settings)
            returns.append(evaluate(best_of(study), "best", 100)["mean_return"])
            steps.append(_steps(study))
        row = (", ".join(f"{value:.1f}" for value in returns), ", ".join(f"{n:,}" for n in steps))
        print(f"| {name} | {row[0]} | {row[1]} |", flush=True)


def _train(study: Path, seed: int, steps: int, settings: tuple[str, ...]) -> None:
    length = (f"n_timesteps={steps}", f"eval.every_steps={steps // 24}", "eval.episodes=10")
    trials = () if "hpo.sampler=pbt" in settings else (f"hpo.n_timesteps={steps}",)
    words = (*TASK, *length, *trials, *settings, "hpo.retrain.best=0", "hpo.keep=all")
    call("train", "-m", *words, f"seed={seed}", f"hpo.seed={seed}", f"hpo.study={study}")


def _best_member(study: Path) -> Path:
    return study / str(_read(study / "schedule.json")["run"])


def _best_trial(study: Path) -> Path:
    number = _read(study / "report.json")["best"][0]["number"]
    return study / "trials" / f"{number:04}" / "s0"


def _steps(study: Path) -> int:
    """Return the environment steps of all runs of a study."""
    if not (log := study / "population.jsonl").is_file():
        results = [result_of(file.parent) for file in study.glob("trials/*/s0/result.json")]
        return sum(int(result["num_timesteps"]) for result in results)
    records = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    last = [r["result"]["step"] for r in records if r.get("result", {}).get("segment") == SEGMENTS]
    return sum(last)


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


if __name__ == "__main__":
    main()
