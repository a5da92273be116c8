"""Published scores of rl_zoo3, reached through this manager with rl_zoo3's values.

    python -m benchmarks.published [--runs ppo:halfcheetah_bullet ...] [--seeds 0] [--workers 2]
                                   [--values agent] [--out FOLDER] [--save benchmarks/results]
    python -m benchmarks.published --trained RUN ... [--save benchmarks/results]

The scores are those of benchmark.md in DLR-RM/rl-baselines3-zoo (MIT licence): mean and standard
deviation over the episodes of one trained agent, of one seed. As there, the last policy plays,
deterministic. The agents are those of DLR-RM/rl-trained-agents, each with a config.yml of its
values: older ones than in today's hyperparameter files, above all with the time that is left of an
episode in the observation. `--values agent` trains with those, `today` with today's. What is
trained already is not trained again; what was interrupted goes on. Full runs take from half an
hour to hours. `--trained` evaluates runs that are there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.trained import config_of, curve_of, evaluate, result_of, train_seeds


@dataclass(frozen=True)
class Score:
    """A published score.

    Attributes:
        mean: Mean return.
        std: Standard deviation over the episodes.
        episodes: Number of them.
        values: What the agent had otherwise than today's values; None if that is not known.
    """

    mean: float
    std: float
    episodes: int
    values: tuple[str, ...] | None


_TIME = "env.wrappers=[time_feature]"
_OF_SAC = (_TIME, "algo.hyperparams.train_freq=64", "algo.hyperparams.gradient_steps=64")
PUBLISHED = {
    "ppo:halfcheetah_bullet": Score(2924.721, 64.465, 150, (_TIME,)),
    "ppo:hopper_bullet": Score(2575.054, 223.301, 152, None),
    "ppo:ant_bullet": Score(2865.922, 56.468, 150, (_TIME,)),
    "ppo:walker2d_bullet": Score(
        2109.992, 13.899, 150, (_TIME, "algo.hyperparams.gae_lambda=0.92")
    ),
    "ppo:reacher_bullet": Score(17.091, 11.048, 1000, (_TIME,)),
    "a2c:reacher_bullet": Score(14.968, 10.978, 1000, (_TIME,)),
    "sac:halfcheetah_bullet": Score(2792.170, 12.088, 150, _OF_SAC),
    "sac:reacher_bullet": Score(18.062, 9.729, 1000, _OF_SAC),
}
DEFAULT = ["ppo:halfcheetah_bullet", "sac:reacher_bullet"]
HEADER = """\
| run | values | seed | steps | minutes | last policy | best | published | inside |
|---|---|---|---|---|---|---|---|---|"""


def main() -> None:
    """Train what is missing, evaluate, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", nargs="+", choices=PUBLISHED, default=DEFAULT)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--values", choices=["agent", "today"], default="agent")
    parser.add_argument("--out", type=Path, default=Path("outputs/published"))
    parser.add_argument("--trained", nargs="+", type=Path, metavar="RUN", help="evaluate these")
    parser.add_argument("--save", type=Path, help="write one JSON a run into this folder")
    options = parser.parse_args()
    print(HEADER, flush=True)
    for run in options.trained or _train(options):
        figures = _figures(run)
        print(_row(figures), flush=True)
        if options.save is not None:
            options.save.mkdir(parents=True, exist_ok=True)
            name = "-".join((*figures["run"].split(":"), figures["values"], f"s{figures['seed']}"))
            file = options.save / f"published-{name}.json"
            file.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def _train(options: argparse.Namespace) -> Iterable[Path]:
    for name in options.runs:
        algo, _, env = name.partition(":")
        words = [f"algo={algo}", f"env={env}", "eval.episodes=10"]
        if options.values == "agent":
            values = PUBLISHED[name].values
            if values is None:
                raise SystemExit(f"{name}: the agent's values are not known. Use --values today.")
            words += values
        folder = options.out / f"{algo}-{env}-{options.values}"
        yield from train_seeds(folder, options.seeds, options.workers, words)


def _figures(run: Path) -> dict[str, Any]:
    if not (run / "result.json").is_file():
        raise SystemExit(f"{run} is not a finished run: it has no result.json. Let it end first.")
    config, result = config_of(run), result_of(run)
    name = f"{config['algo']['name']}:{config['env']['name']}"
    if name not in PUBLISHED:
        raise SystemExit(f"{run} is {name}, without a score here. Known: {', '.join(PUBLISHED)}.")
    score = PUBLISHED[name]
    played = {which: evaluate(run, which, score.episodes) for which in ("final", "best")}
    return {
        "run": name,
        "values": "agent" if score.values and _has(config, score.values) else "today",
        "seed": config["seed"],
        "num_timesteps": result["num_timesteps"],
        "minutes": round(result["training_time_s"] / 60, 1),
        "episodes": score.episodes,
        "final": [played["final"]["mean_return"], played["final"]["std_return"]],
        "best": [played["best"]["mean_return"], played["best"]["std_return"]],
        "published": [score.mean, score.std],
        "inside": abs(played["final"]["mean_return"] - score.mean) <= score.std,
        "curve": curve_of(run),
    }


def _has(config: dict[str, Any], words: Iterable[str]) -> bool:
    """Return whether a configuration has what words would set."""
    for word in words:
        key, _, text = word.partition("=")
        value: Any = config
        for part in key.split("."):
            value = value[part]
        if value != yaml.safe_load(text):
            return False
    return True


def _row(figures: dict[str, Any]) -> str:
    final, best, published = (
        f"{mean:.1f} +- {std:.1f}"
        for mean, std in (figures["final"], figures["best"], figures["published"])
    )
    cells = [figures["run"], figures["values"], figures["seed"], f"{figures['num_timesteps']:,}"]
    cells += [figures["minutes"], final, best, published, "yes" if figures["inside"] else "no"]
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
