"""`rlzoo-plus train`: compose, check, train, and print what to do next; `-m` is in `multirun`."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.analysis.find_run import trust_option
from rlzoo_plus.analysis.series import finite
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.commands.typed import make_console, program_path, tell
from rlzoo_plus.commands.zoo_arguments import in_our_form
from rlzoo_plus.config.catalog import IN_CLOUD, ON_WORKERS
from rlzoo_plus.config.resolve import settings_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.processes import resume_gc
from rlzoo_plus.runs import train_job
from rlzoo_plus.runs.load import load_typed
from rlzoo_plus.runs.plan import Plan, Start, plan_run
from rlzoo_plus.runs.printing import set_up_logging
from rlzoo_plus.runs.train_job import check_before_building

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig


def main(arguments: list[str]) -> int:
    """Train as the command line says; return the exit code."""
    if any(argument in ("-h", "--help") for argument in arguments):
        from rlzoo_plus.commands.train_help import train_help

        tell(train_help(arguments))
        return 0
    arguments = in_our_form("train", arguments)
    if any(argument.startswith(("study=", "trial=")) for argument in arguments):
        from rlzoo_plus.tuning.stored_study import with_trial

        arguments = with_trial(arguments)
    if any(a in ("-m", "--multirun") or a.startswith("schedule=") for a in arguments):
        from rlzoo_plus.commands.train_multirun import main as multirun

        resume_gc()
        return multirun(arguments)
    loaded = load_typed(arguments)

    code = 0
    for config, notes in loaded:
        _check_single(config, notes)
        console = make_console()
        set_up_logging(config.log.level, console)
        command = command_line(["rlzoo-plus", "train", *arguments])
        code = max(code, train_plan(plan_run(config), console, command, notes))
    return code


def _check_single(config: RunConfig, warnings: list[str]) -> None:
    """Check that a configuration is that of a single run, and add notes for the user."""
    if config.sweep is not None:
        warnings.append(f"sweep={config.sweep} is for sweeps: add -m to start one")
    if config.infra.name in IN_CLOUD and settings_of(config.infra).dry_run:
        raise ConfigError(
            f"infra={config.infra.name} is for sweeps and studies, also of one run. Add -m."
        )
    if config.infra.name in ON_WORKERS:
        what = f"infra={config.infra.name} is for sweeps and studies"
        warnings.append(f"{what}: add -m. This run trains here")


def train_plan(plan: Plan, console: Console, command: str, notes: Iterable[str] = ()) -> int:
    """Train as planned, and print what to do next; return the exit code."""
    if plan.start is Start.DONE:
        print_done(console, plan)
        return 0
    problem = check_before_building(plan)
    for note in notes:
        console.print(f"[yellow]note:[/] {note}")

    run_dir, result, code = train_job.run_plan(plan, problem, console, command)
    console.print(_next_commands(plan.config, run_dir, result.state))
    return code


def print_done(console: Console, plan: Plan) -> None:
    """Print that a run is finished, and how it ended."""
    assert plan.run_dir is not None

    result = plan.run_dir.read_result()
    record = result.get("best")
    best = finite(record.get("mean_return")) if isinstance(record, dict) else None
    taken = plan.run_dir.read_status().get("num_timesteps", plan.config.n_timesteps)
    steps = finite(result.get("num_timesteps", taken))
    shown = "" if steps is None else f": {steps:,.0f} steps"
    shown += "" if best is None else f", best mean return {best:.1f}"
    reason = printable(str(result.get("reason", "all steps taken")))
    # A run without a checkpoint cannot be extended.
    has_checkpoint = bool(plan.run_dir.checkpoints().steps())
    longer = "a larger n_timesteps extends it, " if has_checkpoint else ""
    if longer and (rule := plan.run_dir.stop_rule()) is not None:
        place = shlex.quote(f"{plan.run_dir.path}@latest")
        longer = f"`rlzoo-plus branch {place} {rule}=null` goes on without {rule}, "
    console.print(
        f"{plan.run_dir.path} is finished ({reason}){shown}. Nothing to do; {longer}restart=true "
        "starts a new run there.",
        markup=False,
    )


def _next_commands(config: RunConfig, run_dir: RunDir, state: str) -> str:
    """Return the commands that are useful after a run."""
    path = shlex.quote(str(run_dir.path))
    options = _saved_policy(run_dir) + trust_option(config, to_train=False)
    has_display = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    watch = "enjoy" if has_display or not sys.platform.startswith("linux") else "record"
    trust = trust_option(config, to_train=True)
    resume = f"  rlzoo-plus resume {path}{trust}\n" if state == "interrupted" else ""
    beside = Path(sys.executable).parent / "tensorboard"
    program = program_path(beside) if beside.is_file() else "tensorboard"
    tensorboard = (
        f"  {program} --logdir {shlex.quote(str(run_dir.tensorboard))}\n"
        if config.log.tensorboard
        else ""
    )
    return (
        f"\nnext:\n{resume}"
        f"  rlzoo-plus evaluate {path} --episodes 100{options}\n"
        f"  rlzoo-plus {watch} {path}{options}\n"
        f"{tensorboard}  rlzoo-plus runs"
    )


def _saved_policy(run_dir: RunDir) -> str:
    """Return the option that chooses a saved policy: the best needs none."""
    if run_dir.best.is_dir():
        return ""
    if run_dir.final.is_dir():
        return " --which final"
    return "".join(f" --which {step}" for step in run_dir.checkpoints().steps()[-1:])
