"""What policies of robots keep on the other physics engine.

    python -m benchmarks.sim_to_sim RUN [RUN ...] [--episodes 50] [--which best]

RUN is a run directory; its policy plays the same held-out episodes on every engine, in the run's
own environment. "kept" is the mean return on the engine that it was not trained with, as a share
of that on its own; of returns that are not positive it says nothing. See docs/diagnostics.md.
"""

from __future__ import annotations

import argparse
from typing import Any

from rlzoo_plus.envs.engine import is_same_engine
from rlzoo_plus.runs.run import Run
from robots.engines import ENGINES

HEADS = ("environment", "seed", "trained with", *ENGINES, "kept")


def play(run: Run, which: str | None, episodes: int) -> dict[str, dict[str, Any]]:
    """Return the record of the policy's episodes on every engine."""
    return {
        name: run.evaluate(episodes, which=which, overrides=[f"env.kwargs.engine={name}"])
        for name in ENGINES
    }


def row(run: Run, records: dict[str, dict[str, Any]]) -> tuple[str, ...]:
    """Return the cells of one run, in the order of `HEADS`."""
    trained = run.trained_engine
    own = [r["mean_return"] for r in records.values() if is_same_engine(r["engine"], trained)]
    others = [
        r["mean_return"] for r in records.values() if not is_same_engine(r["engine"], trained)
    ]
    kept = f"{min(others) / own[0]:.0%}" if own and others and own[0] > 0 else "-"
    about = (run.config.env.id, str(run.config.seed), str(trained))
    return (*about, *map(_cell, records.values()), kept)


def _cell(record: dict[str, Any]) -> str:
    success = record["success_rate"]
    told = "" if success is None else f", {success:.0%}"
    return f"{record['mean_return']:.4g} +- {record['std_return']:.3g}{told}"


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--which", help="a policy of the run (default: its best)")
    options = parser.parse_args()
    print(f"Mean return +- deviation, success; {options.episodes} held-out episodes.\n")
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    for name in options.runs:
        run = Run.open(name)
        cells = row(run, play(run, options.which, options.episodes))
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
