"""What is known of each policy that comes with the package, from its files, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlzoo_plus.analysis.run_list import aligned
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.analysis.shipped_runs import TRAINED, shipped_names, trained_dir
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.artifacts.untrusted import read_json

# The evaluation on another physics engine, beside episodes/.
OTHER_ENGINE = "other_engine.json"
_COLUMNS = ("name", "engine", "algo", "steps", "minutes", "return", "success", "size")


@dataclass(frozen=True)
class Shipped:
    """One shipped policy."""

    name: str  # `trained/NAME`
    env: str
    engine: str  # Of its training, `-` where it has none
    algo: str
    seed: int
    steps: int  # Of the training
    minutes: float | None  # Of the training
    episodes: int  # Held-out ones
    mean_return: float  # Of them
    std_return: float
    success_rate: float | None  # None where the environment reports none
    other_engine: dict[str, Any] | None  # What it scored there, None where there is no other
    size_bytes: int  # Of all its files

    @property
    def score(self) -> str:
        """Mean and standard deviation of the returns."""
        return f"{self.mean_return:.1f} +- {self.std_return:.1f}"

    def cells(self) -> tuple[str, ...]:
        """Return what each of `_COLUMNS` shows."""
        return (
            *(self.name, self.engine, self.algo, f"{self.steps:,}", _minutes(self.minutes)),
            *(self.score, _percent(self.success_rate), f"{self.size_bytes / 1000:.0f} kB"),
        )


def is_trained_dir(name: str) -> bool:
    """Return whether a name stands for the folder of the shipped policies."""
    here = Path(name)
    is_own = here.exists() and here.resolve() != trained_dir().resolve()
    return name.rstrip("/") == TRAINED and not is_own


def shipped_policies() -> list[Shipped]:
    """Return the shipped policies by name."""
    return [read_shipped(trained_dir() / name) for name in shipped_names()]


def read_shipped(folder: Path) -> Shipped:
    """Read what the files of a policy say."""
    run = RunDir(folder)
    config, result = run.read_config(), run.read_result()
    evaluation = read_json(folder / "episodes" / "evaluation.json")
    seconds = finite(result.get("training_time_s"))
    return Shipped(
        name=f"{TRAINED}/{folder.name}",
        env=config["env"]["name"] or config["env"]["id"],
        engine=str(run.read_provenance().get("engine") or "-").partition(" ")[0],
        algo=config["algo"]["name"],
        seed=config["seed"],
        steps=result["num_timesteps"],
        minutes=None if seconds is None else seconds / 60.0,
        episodes=len(evaluation["returns"]),
        mean_return=evaluation["mean_return"],
        std_return=evaluation["std_return"],
        success_rate=evaluation["success_rate"],
        other_engine=read_json(folder / OTHER_ENGINE) or None,
        size_bytes=sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
    )


def listing(policies: Sequence[Shipped]) -> str:
    """Return a line for each policy, under a head."""
    numbers = ("steps", "minutes", "return", "success", "size")
    return "\n".join(aligned([_COLUMNS, *(one.cells() for one in policies)], numbers))


def markdown(policies: Sequence[Shipped]) -> str:
    """Return the table of the documentation."""
    heads = ("policy", "algorithm", "steps", "minutes", "return (success)")
    rows = [(*heads, "on the other engine"), ("---",) * (len(heads) + 1)]
    for one in policies:
        there = one.other_engine
        other = "" if there is None else f"{there['mean_return']:.1f}"
        rate = None if there is None else there["success_rate"]
        other += "" if rate is None else f" ({_percent(rate)})"
        steps, minutes = f"{one.steps:,}", _minutes(one.minutes)
        score = f"{one.score} ({_percent(one.success_rate)})"
        rows.append((f"`{one.name}`", one.algo, steps, minutes, score, other))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _percent(rate: float | None) -> str:
    return "-" if rate is None else f"{100 * rate:.0f}%"


def _minutes(minutes: float | None) -> str:
    return "-" if minutes is None else f"{minutes:.1f}"
