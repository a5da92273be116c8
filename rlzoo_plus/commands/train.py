"""`rlzoo-plus train`: compose, check, train, report; `-m` is in `multirun`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import tell
from rlzoo_plus.config.errors import ConfigError, RunError
from rlzoo_plus.runs.claim import check_before_building
from rlzoo_plus.runs.plan import Plan, Start, plan_run

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig


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
    from rlzoo_plus.runs.terminal import set_up_logging

    console = make_console()
    set_up_logging(config.log.level, console)
    begun = plan_or_done(config, console)
    if begun is None:
        return 0
    if config.sweep is not None:
        warnings.append(f"sweep={config.sweep} is for sweeps: add -m to start one")
    for warning in warnings:
        console.print(f"[yellow]note:[/] {warning}")
    command = command_line(["rlzoo-plus", "train", *arguments])
    return train_and_say(*begun, console, command)


def plan_or_done(config: RunConfig, console: Console) -> tuple[Plan, str | None] | None:
    """Plan a run and check what needs no torch; None, and a word about it, if it is finished.

    Returns:
        The plan, and why the run could not be resumed bit for bit, None if it could.
    """
    plan = plan_run(config)
    if plan.start is Start.DONE:
        print_done(console, plan)
        return None
    return plan, check_before_building(plan)


def train_and_say(plan: Plan, problem: str | None, console: Console, command: str) -> int:
    """Train as planned, and print what to type next; return the exit code."""
    from rlzoo_plus.runs.job import run_plan

    outcome = run_plan(plan, problem, console, command)
    console.print(_next_commands(plan.config, outcome.run_dir, outcome.result.state))
    return outcome.exit_code


def print_done(console: Console, plan: Plan) -> None:
    """Say that a run is finished, and how it ended."""
    assert plan.run_dir is not None
    from rlzoo_plus.analysis.series import finite
    from rlzoo_plus.artifacts.untrusted import printable

    result = plan.run_dir.read_result()
    record = result.get("best")
    best = finite(record.get("mean_return")) if isinstance(record, dict) else None
    taken = plan.run_dir.read_status().get("num_timesteps", plan.config.n_timesteps)
    steps = finite(result.get("num_timesteps", taken))
    shown = "" if steps is None else f": {steps:,.0f} steps"
    shown += "" if best is None else f", best mean return {best:.1f}"
    reason = printable(str(result.get("reason", "all steps taken")))
    # Only a checkpoint can be gone on from.
    has_more = plan.run_dir.checkpoints().steps()
    longer = "a larger n_timesteps makes it longer, " if has_more else ""
    console.print(
        f"{plan.run_dir.path} is finished ({reason}){shown}. Nothing to do; {longer}restart=true "
        "starts it anew.",
        markup=False,
    )


def _saved_policy(run_dir: RunDir) -> str:
    """Return the option that chooses a policy which is there: the best needs none."""
    if run_dir.best.is_dir():
        return ""
    if run_dir.final.is_dir():
        return " --which final"
    return "".join(f" --which {step}" for step in run_dir.checkpoints().steps()[-1:])


def _next_commands(config: RunConfig, run_dir: RunDir, state: str) -> str:
    from rlzoo_plus.config.own_code import own_code

    program = "rlzoo-plus"
    options = _saved_policy(run_dir)
    options += " --trust" if own_code(config, "play") else ""
    # Without a display there is nothing to watch a robot in.
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    watch = "enjoy" if has_display or not sys.platform.startswith("linux") else "record"
    trust = " --trust" if "--trust" in options or config.callbacks or config.tracker else ""
    resume = f"  {program} resume {run_dir.path}{trust}\n" if state == "interrupted" else ""
    return (
        f"\nnext:\n{resume}"
        f"  {program} evaluate {run_dir.path} --episodes 100{options}\n"
        f"  {program} {watch} {run_dir.path}{options}\n"
        f"  {_program('tensorboard')} --logdir {run_dir.tensorboard}\n"
        f"  {program} runs"
    )


def _program(name: str) -> str:
    """Return a program as it must be typed here: with its folder if that is not on the path."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) is not None or not beside.is_file():
        return name
    return os.path.relpath(beside) if beside.is_relative_to(Path.cwd()) else str(beside)
