"""`rlzoo-plus train`: compose, check, train, report; `-m` is in `multirun`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlzoo_plus.commands.next_steps import next_commands, print_done
from rlzoo_plus.commands.typed import tell
from rlzoo_plus.errors import ConfigError, RunError
from rlzoo_plus.runs.job import check_before_building
from rlzoo_plus.runs.plan import Plan, Start, plan_run

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.composer import Composed


def main(arguments: list[str]) -> int:
    """Train as the command line says; return the exit code."""
    if any(argument in ("-h", "--help") for argument in arguments):
        from rlzoo_plus.commands.train_help import train_help

        tell(train_help(arguments))
        return 0
    if any(argument.startswith(("study=", "trial=")) for argument in arguments):
        from rlzoo_plus.tuning.stored_study import with_trial

        arguments = with_trial(arguments)
    if any(argument in ("-m", "--multirun") for argument in arguments):
        from rlzoo_plus.commands.multirun import main as multirun

        return multirun(arguments)
    from rlzoo_plus.config.compose import run_hydra

    codes: list[int] = []
    mistakes: list[ConfigError | RunError] = []

    def job(composed: Composed) -> None:
        # Hydra would add a line of its own to an error that passes through it.
        try:
            codes.append(_run_single(composed, arguments))
        except (ConfigError, RunError) as error:
            mistakes.append(error)

    run_hydra(job, arguments)
    if mistakes:
        raise mistakes[0]
    return max(codes, default=0)


def _run_single(composed: Composed, arguments: list[str]) -> int:
    from rlzoo_plus.runs.compose import resolve_cfg

    config, warnings = resolve_cfg(composed, arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.runs.printing import set_up_logging

    console = make_console()
    set_up_logging(config.log.level, console)
    if config.sweep is not None:
        warnings.append(f"sweep={config.sweep} is for sweeps: add -m to start one")
    command = command_line(["rlzoo-plus", "train", *arguments])
    return train_plan(plan_run(config), console, command, warnings)


def train_plan(plan: Plan, console: Console, command: str, notes: Iterable[str] = ()) -> int:
    """Train as planned, and print what to type next; return the exit code."""
    if plan.start is Start.DONE:
        print_done(console, plan)
        return 0
    problem = check_before_building(plan)
    for note in notes:
        console.print(f"[yellow]note:[/] {note}")
    from rlzoo_plus.runs.job import run_plan

    outcome = run_plan(plan, problem, console, command)
    console.print(next_commands(plan.config, outcome.run_dir, outcome.result.state))
    return outcome.exit_code
