"""Benchmark suites: fixed algorithms and environments, a sweep for each algorithm, one table.

A suite that was interrupted finishes only what is missing, as every sweep does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rlzoo_plus.analysis.estimates import estimate, few_seeds_text, shown
from rlzoo_plus.analysis.index import RunEntry, load_runs
from rlzoo_plus.analysis.scores import make_sides, published_scores
from rlzoo_plus.analysis.style import thousands
from rlzoo_plus.analysis.tables import markdown_cell, markdown_table
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.sweeps.sweep import sweep

_WALKERS = ("ant_bullet", "halfcheetah_bullet", "hopper_bullet", "walker2d_bullet")
_BULLET = (*_WALKERS, "reacher_bullet")
_ROBOTS = (
    *("cartpole_bullet", "cartpole_swingup", "double_pendulum", "cartpole_camera", "kuka_reach"),
    *("a1_walk", "vision60_walk", "husky_drive", "racecar_drive", "halfcheetah"),
)
HEADS = ("environment", "algorithm", "steps", "seeds", "final (IQM, 95 %)", "best", "published")


@dataclass(frozen=True)
class Suite:
    """Algorithms and environments to compare, each with its tuned values."""

    about: str  # what it is for, and how long it takes
    pairs: Mapping[str, tuple[str, ...]]  # the environments of each algorithm
    overrides: tuple[str, ...] = ()  # for all runs


SUITES = {
    "smoke": Suite(
        "two algorithms on two cart-poles, 24,576 steps: minutes",
        dict.fromkeys(("ppo", "a2c"), ("cartpole", "cartpole_bullet")),
        ("n_timesteps=24576",),
    ),
    "bullet": Suite(
        "the locomotion environments with published scores, 1 or 2 million steps: days",
        dict.fromkeys(("ppo", "a2c", "sac", "td3", "tqc"), _BULLET),
    ),
    "robots": Suite("the robots of this package: hours", {"ppo": _ROBOTS, "her": ("franka_push",)}),
}


def run_suite(name: str, seeds: Sequence[int], overrides: Sequence[str] = ()) -> list[Path]:
    """Train what is missing of a suite; return the directories of its sweeps.

    Args:
        name: One of `SUITES`.
        seeds: The seeds of each run.
        overrides: For all runs, e.g. `n_timesteps=10000` or `infra.workers=4`; other steps are
            other runs.
    """
    if name not in SUITES:
        raise ConfigError(unknown_name("suite", name, SUITES))
    suite, folders = SUITES[name], []
    for algo, envs in suite.pairs.items():
        words = [f"algo={algo}", f"env={','.join(envs)}", *suite.overrides, *overrides]
        words += [f"sweep=benchmark-{name}-{algo}", f"seed={','.join(map(str, seeds))}"]
        folders.append(sweep(words).path)
    return folders


def suite_table(folders: Sequence[Path]) -> tuple[str, list[str]]:
    """Return a Markdown table of the runs in sweeps, and a text for each run that does not count.

    Published scores are those of one agent of the best algorithm, trained with the published steps.
    """
    sides, notes = make_sides({"": load_runs(folders)})
    published = published_scores()
    rows: list[tuple[str, ...]] = []
    for env in sorted({env for side in sides for env in side.runs}):
        for side in (side for side in sides if env in side.runs):
            runs = list(side.runs[env].values())
            known = published.get(str(runs[0].values.get("env.id")))
            rows.append(
                (
                    env,
                    side.name,
                    _steps(runs),
                    str(len(runs)),
                    shown(estimate(side.scores(env, "final")), with_n=False),
                    shown(estimate(side.scores(env, "best")), with_n=False),
                    "-" if known is None else f"{known[1]:.4g}",
                )
            )
    table = "\n".join(markdown_table(HEADS, [[*map(markdown_cell, row)] for row in rows]))
    warning = few_seeds_text([int(row[3]) for row in rows])
    return table + (f"\n\n{warning}" if warning else "") + "\n", notes


def _steps(runs: Sequence[RunEntry]) -> str:
    counts = sorted({run.summary.n_timesteps or 0 for run in runs})
    return " or ".join(thousands(count) for count in counts)
