"""Published scores of rl_zoo3, reached through this manager with rl_zoo3's values.

    python -m benchmarks.published [--runs ppo:halfcheetah_bullet ...] [--seeds 0] [--workers 2]
                                   [--out FOLDER] [--save benchmarks/results]

The scores are those of benchmark.md in DLR-RM/rl-baselines3-zoo (MIT licence): mean and standard
deviation over the episodes of one trained agent. As there, the last policy plays, deterministic.
What is trained already is not trained again; what was interrupted goes on. Full runs take from
half an hour to hours.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.trained import config_of, curve_of, evaluate, result_of, train_seeds


@dataclass(frozen=True)
class Score:
    """A published score.

    Attributes:
        mean: Mean return.
        std: Standard deviation over the episodes.
        episodes: Number of them.
    """

    mean: float
    std: float
    episodes: int


PUBLISHED = {
    "ppo:halfcheetah_bullet": Score(2924.721, 64.465, 150),
    "ppo:ant_bullet": Score(2865.922, 56.468, 150),
    "ppo:hopper_bullet": Score(2575.054, 223.301, 152),
    "ppo:walker2d_bullet": Score(2109.992, 13.899, 150),
    "ppo:reacher_bullet": Score(17.091, 11.048, 1000),
    "a2c:reacher_bullet": Score(14.968, 10.978, 1000),
    "sac:halfcheetah_bullet": Score(2792.170, 12.088, 150),
    "sac:reacher_bullet": Score(18.062, 9.729, 1000),
    "td3:reacher_bullet": Score(17.114, 9.750, 1000),
    "ddpg:reacher_bullet": Score(15.582, 9.606, 1000),
}
DEFAULT = ["ppo:halfcheetah_bullet", "sac:reacher_bullet"]
HEADER = """\
| run | seed | steps | minutes | return of the last policy | of the best | published | inside |
|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Train what is missing, evaluate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", nargs="+", choices=PUBLISHED, default=DEFAULT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("outputs/published"))
    parser.add_argument("--save", type=Path, help="write one JSON a run into this folder")
    options = parser.parse_args()
    print(HEADER, flush=True)
    for name in options.runs:
        algo, _, env = name.partition(":")
        folder = options.out / f"{algo}-{env}"
        words = [f"algo={algo}", f"env={env}", "eval.episodes=10"]
        for run in train_seeds(folder, options.seeds, options.workers, words):
            figures = _figures(name, run)
            print(_row(name, figures), flush=True)
            if options.save is not None:
                options.save.mkdir(parents=True, exist_ok=True)
                file = options.save / f"published-{name.replace(':', '-')}-s{figures['seed']}.json"
                file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _figures(name: str, run: Path) -> dict[str, Any]:
    score = PUBLISHED[name]
    result = result_of(run)
    played = {which: evaluate(run, which, score.episodes) for which in ("final", "best")}
    return {
        "run": name,
        "seed": config_of(run)["seed"],
        "num_timesteps": result["num_timesteps"],
        "minutes": round(result["training_time_s"] / 60, 1),
        "episodes": score.episodes,
        "final": [played["final"]["mean_return"], played["final"]["std_return"]],
        "best": [played["best"]["mean_return"], played["best"]["std_return"]],
        "published": [score.mean, score.std],
        "inside": abs(played["final"]["mean_return"] - score.mean) <= score.std,
        "curve": curve_of(run),
    }


def _row(name: str, figures: dict[str, Any]) -> str:
    final, best, published = (
        f"{mean:.1f} +- {std:.1f}"
        for mean, std in (figures["final"], figures["best"], figures["published"])
    )
    steps = f"{figures['num_timesteps']:,}"
    cells = (name, figures["seed"], steps, figures["minutes"], final, best, published)
    return f"| {' | '.join(map(str, cells))} | {'yes' if figures['inside'] else 'no'} |"


if __name__ == "__main__":
    main()
