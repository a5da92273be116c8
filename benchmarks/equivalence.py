"""Learning curves of `fast` against the exact ones: are they equivalent?

Each case trains several seeds with `fast=true`, or another value, and without, as one sweep: run
the command again and it finishes only what is missing. Two scores of each run are compared, the
mean of its last three evaluations and the mean of all of them (the area under its curve).
Equivalent means: two one-sided t-tests (TOST) of the differences seed by seed reject, at 5 % each,
that the mean scores differ by more than the margin, a tenth of the range of scores. Too few seeds
for that give "not shown", and exit code 1.

    python -m benchmarks.equivalence [CASE ...] [--seeds 5] [--steps N] [--workers 2]
                                     [--margin 0.1] [--folder outputs/equivalence]
                                     [--fast bfloat16]
                                     [--save benchmarks/results/equivalence.json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks.processes import ONE_THREAD, ROOT
from rlzoo_plus.analysis.run_list import find_runs
from rlzoo_plus.analysis.series import load_evaluations
from rlzoo_plus.artifacts.run_dir import FINISHED, RunDir

_LEVEL, _N_EVALUATIONS, _LAST = 0.05, 10, 3
_SMALL = "network.net_arch=[64,64]"
# Products of layers as large as these are those that `fast=bfloat16` rounds.
_LARGE = "network.net_arch=[256,256]"
_SOON = "algo.hyperparams.learning_starts=500"


@dataclass(frozen=True)
class Case:
    """A training.

    Attributes:
        overrides: What the command line says.
        steps: Environment steps.
        low: Score of a policy that has learned nothing.
        high: Score of a very good one.
    """

    overrides: tuple[str, ...]
    steps: int
    low: float
    high: float


CASES = {
    "ppo cartpole": Case(("algo=ppo", "env=cartpole"), 30_000, 0, 500),
    "ppo cartpole_bullet": Case(("algo=ppo", "env=cartpole_bullet"), 40_960, 0, 500),
    "a2c cartpole_bullet": Case(("algo=a2c", "env=cartpole_bullet"), 200_000, 0, 500),
    "sac pendulum": Case(("algo=sac", "env=pendulum", _SMALL), 5_000, -1_600, 0),
    "sac pendulum large": Case(("algo=sac", "env=pendulum", _LARGE), 5_000, -1_600, 0),
    "td3 pendulum large": Case(("algo=td3", "env=pendulum", _LARGE, _SOON), 5_000, -1_600, 0),
    "tqc pendulum large": Case(("algo=tqc", "env=pendulum", _LARGE, _SOON), 5_000, -1_600, 0),
    "ppo inverted_pendulum_bullet": Case(
        ("algo=ppo", "env=inverted_pendulum_bullet"), *(61_440, 0, 1_000)
    ),
    "td3 inverted_pendulum_bullet": Case(
        (
            "algo=td3",
            "env=inverted_pendulum_bullet",
            _SMALL,
            "algo.hyperparams.learning_starts=500",
        ),
        *(6_000, 0, 1_000),
    ),
    "tqc cartpole_bullet": Case(
        ("algo=tqc", "env=cartpole_bullet", _SMALL, _SOON),
        *(5_000, 0, 500),
    ),
}


@dataclass(frozen=True)
class Verdict:
    """What was found for one score of one case.

    Attributes:
        fast: The score of each seed with `fast`.
        exact: The score of each seed without.
        difference: Mean with minus mean without.
        p_value: The larger one of the two tests.
        equivalent: Whether it is below the level.
    """

    fast: list[float]
    exact: list[float]
    difference: float
    p_value: float
    equivalent: bool


def main() -> None:
    """Train what is missing, print a table and the verdict."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of each run, instead of the case's own")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time")
    parser.add_argument("--margin", type=float, default=0.1, help="part of the range of scores")
    parser.add_argument("--folder", type=Path, default=ROOT / "outputs" / "equivalence")
    parser.add_argument("--fast", choices=["true", "bfloat16"], default="true")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the numbers as JSON")
    options = parser.parse_args()
    unknown = set(options.cases) - set(CASES)
    if unknown or options.seeds < 2:
        parser.error(f"no case {unknown}" if unknown else "--seeds must be at least 2")
    print("| case | score | fast | exact | difference | margin | p | equivalent |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    results = {}
    for name in options.cases or CASES:
        case = CASES[name]
        steps = options.steps or case.steps
        folder = options.folder / f"{name.replace(' ', '-')}-{steps}-{options.fast}"
        _train(case, steps, options, folder)
        margin = options.margin * (case.high - case.low)
        results[name] = compared(folder, options.seeds, margin)
        for score, verdict in results[name].items():
            print(_row(name, score, verdict, margin), flush=True)
    if options.save is not None:
        found = {name: {s: asdict(v) for s, v in each.items()} for name, each in results.items()}
        about = {"seeds": options.seeds, "steps": options.steps, "margin": options.margin}
        about["fast"] = options.fast
        text = json.dumps({"about": about, "results": found}, indent=1)
        options.save.write_text(text + "\n", encoding="utf-8")
    shown = all(v.equivalent for each in results.values() for v in each.values())
    print("\nequivalent" if shown else "\nnot shown to be equivalent")
    raise SystemExit(0 if shown else 1)


def _train(case: Case, steps: int, options: argparse.Namespace, folder: Path) -> None:
    """Run the sweep of a case; runs that are finished stay."""
    command = [sys.executable, str(ROOT / "train.py"), "-m", *case.overrides]
    command += [f"fast=false,{options.fast}", f"seed=range(0,{options.seeds})"]
    command += [f"sweep={folder}", f"n_timesteps={steps}"]
    command += ["device=cpu", "num_threads=1", f"infra.workers={options.workers}"]
    command += ["report.plot=false", "report.video=false", "log.tensorboard=false"]
    command += [f"eval.every_steps={steps // _N_EVALUATIONS}", "eval.episodes=10"]
    variables = {**os.environ, **ONE_THREAD}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def compared(folder: Path, n_seeds: int, margin: float) -> dict[str, Verdict]:
    """Return the verdict on each score of a sweep's finished runs, of the first seeds."""
    scores: dict[bool, dict[int, tuple[float, float]]] = {True: {}, False: {}}
    for run in find_runs([folder]):
        config = run.read_config()
        if run.read_status()["state"] == FINISHED:
            scores[bool(config.get("fast", False))][config["seed"]] = _scores(run)
    seeds = [seed for seed in range(n_seeds) if seed in scores[True] and seed in scores[False]]
    fast, exact = ([scores[which][seed] for seed in seeds] for which in (True, False))
    return {
        name: tost([s[k] for s in fast], [s[k] for s in exact], margin)
        for k, name in enumerate(("final", "area"))
    }


def _scores(run: RunDir) -> tuple[float, float]:
    means = [evaluation.mean_return for evaluation in load_evaluations(run)]
    return float(np.mean(means[-_LAST:])), float(np.mean(means))


def tost(fast: Sequence[float], exact: Sequence[float], margin: float) -> Verdict:
    """Test whether two means differ by less than a margin, given the scores of each seed."""
    differences = np.subtract(fast, exact)
    difference = float(np.mean(differences))
    if np.ptp(differences) == 0:  # there is nothing to estimate
        p_value = float(abs(difference) >= margin)
    else:
        above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
        below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
        p_value = float(max(above, below))
    return Verdict(list(fast), list(exact), difference, p_value, p_value < _LEVEL)


def _row(name: str, score: str, verdict: Verdict, margin: float) -> str:
    cells = [name, score, f"{np.mean(verdict.fast):.1f}", f"{np.mean(verdict.exact):.1f}"]
    cells += [f"{verdict.difference:+.1f}", f"{margin:.0f}", f"{verdict.p_value:.4f}"]
    return f"| {' | '.join([*cells, 'yes' if verdict.equivalent else 'NOT SHOWN'])} |"


if __name__ == "__main__":
    main()
