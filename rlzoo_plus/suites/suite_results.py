"""The results of a suite: a small JSON file with a line for each run, kept apart from the runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from rlzoo_plus.analysis.clocks import positions
from rlzoo_plus.analysis.series import finite, load_evaluations
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.untrusted import one_line, parse_json, printable
from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.config.section import Section
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.run import Run
from rlzoo_plus.suites.suite_file import Cell, Suite
from rlzoo_plus.sweeps.sweep_job import SweepJob

Key = tuple[str, int]


class Result(Section):
    """A finished run, and how its policy played."""

    cell: str  # The cell's name
    seed: int  # Of the training
    n_timesteps: int  # Steps that were taken
    minutes: float | None = None  # Wall time of the training, None if not known
    fast: bool | Literal["bfloat16"] = False  # As in its configuration
    episodes: int  # Held-out episodes that the policy played
    mean: float  # Mean return of these
    std: float | None = None  # Standard deviation over them
    success: float | None = None  # Share that succeeded, where the environment says so
    solved_return: float | None = None  # Mean return from which on the environment is solved
    # Evaluations during training: step, minutes of training (None if not known), mean return.
    curve: tuple[tuple[int, float | None, float], ...] = ()
    # Hash of the configuration; None if that is not known: such a result counts for its cell.
    values: str | None = None

    @property
    def key(self) -> Key:
        """Cell and seed."""
        return self.cell, self.seed

    def reached(self, target: float) -> float | None:
        """Return the minutes until an evaluation first reached a return, None if not known."""
        return next((minutes for _, minutes, mean in self.curve if mean >= target), None)

    def has_clock(self) -> bool:
        """Return whether the times of its evaluations are known."""
        return any(minutes is not None for _, minutes, _ in self.curve)


class SideBySide(Section):
    """Minutes until an evaluation first reached the score of a cell, by tool, on the same cores."""

    cell: str
    cores: int
    target: float
    seed: int = 0
    minutes: dict[str, float | None]  # None: not within its steps
    steps: dict[str, int | None] = Field(default_factory=dict)  # Of the training until then
    about: str = ""  # Versions, processor and date


class _File(Section):
    suite: str
    runs: tuple[Result, ...] = ()
    side_by_side: tuple[SideBySide, ...] = ()


class Results:
    """The results of a suite by cell and seed, in a file."""

    def __init__(self, path: Path, suite: str) -> None:
        """Read the file; without one there are no results.

        Raises:
            ConfigError: It is not a file of results, or of another suite.
        """
        self.path, self.suite = path, suite
        self.runs: dict[Key, Result] = {}
        self.side_by_side: dict[str, SideBySide] = {}
        self._read()

    def _read(self) -> None:
        if not self.path.is_file():
            return
        name = printable(self.path)
        try:
            file = _File.model_validate(parse_json(self.path.read_bytes()))
        except ValidationError as error:
            item: Any = error.errors()[0]
            where = ".".join(map(str, item["loc"]))
            raise ConfigError(f"{name}: {where}: {item['msg'].lower()}.") from None
        except ValueError as error:
            raise ConfigError(f"{name}: not a file of results: {one_line(error)}.") from None
        if file.suite != self.suite:
            raise ConfigError(
                f"{name} has results of the suite {printable(file.suite)!r}, not of "
                f"{self.suite!r}. Name another file: --results FILE.json."
            )
        self.runs = {run.key: run for run in file.runs}
        self.side_by_side = {pair.cell: pair for pair in file.side_by_side}

    def has(self, key: Key, job: SweepJob) -> bool:
        """Return whether there is a result of a job, or one whose configuration is not known."""
        known = self.runs.get(key)
        return known is not None and known.values in (None, config_hash(job.config))

    def add(self, item: Result | SideBySide) -> None:
        """Add a result, or replace it, and write the file, a line for each."""
        # Another command may have added some meanwhile.
        self._read()
        if isinstance(item, Result):
            self.runs[item.key] = item
        else:
            self.side_by_side[item.cell] = item
        lines = [
            _line(run, exclude_defaults=True)
            for _, run in sorted(self.runs.items(), key=lambda item: item[0])
        ]
        pairs = [_line(pair) for _, pair in sorted(self.side_by_side.items())]
        parts = [f'"suite": {json.dumps(self.suite)}', _block("runs", lines)]
        if pairs:
            parts.append(_block("side_by_side", pairs))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(self.path, "{" + ",\n".join(parts) + "}\n")


def _block(name: str, lines: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(lines) + "\n]"


def _line(item: Section, **options: Any) -> str:
    return json.dumps(item.model_dump(mode="json", **options))


def collect(
    suite: Suite,
    jobs: Iterable[tuple[Cell, SweepJob]],
    results: Results,
    say: Callable[[str], None],
    *,
    trust: bool = False,
) -> None:
    """Let the policies of finished runs play that have no result yet, and save after each."""
    for cell, job in jobs:
        key = (cell.name, job.config.seed)
        if results.has(key, job) or not job.is_finished():
            continue
        if key in results.runs:
            say(f"{cell.name}, seed {job.config.seed}: replaces a result of other values")
        results.add(_result_of(suite, cell, job, trust=trust))


def _result_of(suite: Suite, cell: Cell, job: SweepJob, *, trust: bool) -> Result:
    run = Run.open(job.path, trust=trust)
    played = run.evaluate(cell.episodes, which=suite.policy)
    outcome, config = job.run_dir.read_result(), job.config
    seconds = finite(outcome.get("training_time_s"))
    return Result(
        cell=cell.name,
        seed=config.seed,
        n_timesteps=outcome["num_timesteps"],
        minutes=None if seconds is None else round(seconds / 60, 2),
        fast=config.fast,
        episodes=cell.episodes,
        mean=round(played["mean_return"], 3),
        std=round(played["std_return"], 3),
        success=played["success_rate"],
        solved_return=config.env.solved_return,
        curve=_curve(job),
        values=config_hash(config),
    )


def _curve(job: SweepJob) -> tuple[tuple[int, float | None, float], ...]:
    evaluations = load_evaluations(job.run_dir)
    steps = np.array([each.step for each in evaluations], dtype=np.float64)
    minutes = 60.0 * positions(job.run_dir, steps, "hours")
    return tuple(
        (each.step, round(float(at), 2) if np.isfinite(at) else None, round(each.mean_return, 3))
        for each, at in zip(evaluations, minutes, strict=True)
    )


def of_cell(results: Results, cell: Cell) -> Sequence[Result]:
    """Return the results of a cell by rising seed."""
    return [run for key, run in sorted(results.runs.items()) if key[0] == cell.name]
