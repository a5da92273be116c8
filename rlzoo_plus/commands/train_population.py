"""`rlzoo-plus train -m hpo.sampler=pbt`: a population; `train schedule=FILE`: its best again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rlzoo_plus.commands.typed import make_console
from rlzoo_plus.config.overrides import TRUST
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.populations.breeding import Breeder
from rlzoo_plus.populations.lineage import train_schedule, write_schedule
from rlzoo_plus.populations.member_job import PRELOAD
from rlzoo_plus.populations.members import Members
from rlzoo_plus.populations.population import DIVERGED, Population, Result, Task
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.sweep_job import busy_cores
from rlzoo_plus.tuning.population_settings import read_settings
from rlzoo_plus.tuning.study_plan import StudyPlan, study_mistakes


def train_population(plan: StudyPlan, notes: Sequence[str]) -> int:
    """Train a population, and write how the best member came about; return the exit code.

    Raises:
        ConfigError: A setting is wrong, or another command trains it.
        RunError: A member failed.
    """
    mistakes = study_mistakes(plan)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    members, console = Members(plan, read_settings(plan.hpo.sampler_options)), make_console()
    members.require_growth()
    for note in dict.fromkeys(notes):
        console.print(f"[yellow]note:[/] {note}")
    infra = plan.base.infra
    launcher = make_launcher(infra, busy_cores(plan.base), PRELOAD, sweep=plan.name)
    settings = members.settings
    console.print(
        f"population {plan.folder}: {settings.population} members, {launcher.slots} at once, "
        f"{settings.segments} parts of {members.until(1):,} steps each",
        markup=False,
    )

    def told(what: Task | Result, why: str) -> None:
        line = _line(what, why, breeder.population)
        if line:
            console.print(line, markup=False)

    breeder = Breeder(members, launcher, told)
    code = breeder.run()
    if code > 1:
        console.print("stopped; the same command goes on", markup=False)
    elif code == 0:
        _conclude(members, breeder.population, console)
    return code


def train_by_schedule(arguments: list[str]) -> int:
    """Train by the schedule of a population; return the exit code.

    Raises:
        ConfigError: The file is damaged, needs trust, or there are other overrides.
        RunError: The weights at the end are others.
    """
    words = dict(word.partition("=")[::2] for word in arguments if "=" in word)
    more = [word for word in arguments if word.partition("=")[0] not in ("schedule", "run_dir")]
    if [word for word in more if word != TRUST] or not words.get("run_dir"):
        raise ConfigError(
            "schedule=FILE trains as a population has: add run_dir=FOLDER for its runs, and "
            f"nothing else{f' ({more[0]})' if more else ''}."
        )
    console, file = make_console(), Path(words["schedule"])
    last = train_schedule(
        file,
        Path(words["run_dir"]),
        trust=TRUST in more,
        told=lambda line: console.print(line, markup=False),
    )
    console.print(f"{last}: the same weights, bit for bit, as {file} says", markup=False)
    return 0


def _line(what: Task | Result, why: str, population: Population) -> str:
    """Return what is printed of a part of a training."""
    if isinstance(what, Result):
        score = "diverged" if what.score == DIVERGED else f"{what.score:.1f}"
        return f"member {what.member}, part {what.segment}: {score} at step {what.step:,}"
    if not why or what.parent is None:
        return ""
    before = next(t.overrides for t in reversed(population.history) if t.run == what.parent)
    new = (word.partition("=")[::2] for word in what.overrides if word not in before)
    changed = ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in new)
    where = f"{what.parent} at step {what.parent_step:,}"
    return f"member {what.member} goes on from {where}: {changed or 'the same values'}"


def _conclude(members: Members, population: Population, console: Console) -> None:
    """Print the members, and write the schedule of the best."""
    table = Table("member", "score", "branches", "values")
    last = members.settings.segments
    for member in range(members.settings.population):
        result = population.results.get((member, last))
        task = population.tasks[member]
        score = "" if result is None else f"{result.score:.1f}"
        branches = str(len(population.lineage(task.run)) - 1)
        table.add_row(str(member), score, branches, " ".join(task.overrides))
    console.print(table)
    best, path = population.best(), write_schedule(members, population)
    assert best is not None
    run, again = members.path(best.run), members.plan.folder / "again"
    words = [shlex.quote(str(word)) for word in (run, f"schedule={path}", f"run_dir={again}")]
    console.print(
        f"best: {run}\n\nnext:\n  rlzoo-plus evaluate {words[0]} --which final --episodes 100\n"
        f"  rlzoo-plus train {words[1]} {words[2]}",
        markup=False,
    )
