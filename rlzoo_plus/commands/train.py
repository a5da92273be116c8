"""`rlzoo-plus train`: compose, check, train, report; `-m` is in `multirun`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.commands.continuing import (
    BusyError,
    Plan,
    Start,
    move_aside,
    plan_run,
    print_done,
)
from rlzoo_plus.commands.typed import tell
from rlzoo_plus.config.errors import ConfigError, RunError

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.lock import RunLock
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.callbacks import ProgressCallback, StopRequest
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.exp_manager import TrainResult

OUTPUTS = Path("outputs")
EXIT_SIGINT, EXIT_SIGTERM, EXIT_ENDED = 130, 75, 74
# Follows the evaluations of a run, and may ask it to stop.
Watcher = Callable[[dict[str, Any], "StopRequest"], None]


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
    from rlzoo_plus.commands.composing import resolve_cfg

    config, warnings = resolve_cfg(composed, arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.commands.console import make_console, set_up_logging

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
    return run_plan(*begun, console, command)


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


def check_before_building(plan: Plan) -> str | None:
    """Check what can be wrong without torch, so that a mistake is answered at once.

    Returns:
        Why the run could not be resumed bit for bit, None if it could.
    """
    from rlzoo_plus.envs.checks import inspect_env
    from rlzoo_plus.envs.memory import check_memory

    facts = inspect_env(plan.config)
    check_memory(plan.config, facts.observation_space, facts.action_space)
    if plan.config.tracker is not None:
        from rlzoo_plus.tracking import check_tracker

        check_tracker(plan.config.tracker)
    if plan.run_dir is not None:
        try:
            plan.run_dir.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            is_file = plan.run_dir.path.is_file() or isinstance(error, FileExistsError)
            reason = "it is a file" if is_file else error.strerror
            raise ConfigError(
                f"run_dir={plan.config.run_dir} cannot be made: {reason}. Choose another directory."
            ) from error
        if not os.access(plan.run_dir.path, os.W_OK | os.X_OK):
            raise ConfigError(
                f"run_dir={plan.config.run_dir} cannot be written to. Choose another directory, or "
                "change its permissions."
            )
    return facts.replay_problem


def run_plan(
    plan: Plan,
    problem: str | None,
    console: Console,
    command: str,
    *,
    is_sweep: bool = False,
    watch: Watcher | None = None,
) -> int:
    """Train as planned, after `check_before_building`; return the exit code.

    It is 130 or 75 after a signal, 74 if `watch` has asked to stop.

    Raises:
        RunError: The run broke off; the exit code is 1 then.
    """
    # Only now the second that importing torch takes.
    from rlzoo_plus.agents.factory import check_device
    from rlzoo_plus.callbacks import check_user_callbacks

    check_device(plan.config.device)
    check_user_callbacks(plan.config)
    run_dir, lock = _take_run_dir(plan, command, problem)
    try:
        return _train(plan, run_dir, console, problem, is_sweep=is_sweep, watch=watch)
    finally:
        lock.release()


def _train(
    plan: Plan,
    run_dir: RunDir,
    console: Console,
    problem: str | None,
    *,
    is_sweep: bool,
    watch: Watcher | None,
) -> int:
    from rlzoo_plus.callbacks import StopRequest
    from rlzoo_plus.commands.report import print_header, print_result, write_report
    from rlzoo_plus.exp_manager import ExpManager

    config = plan.config
    print_header(console, config, run_dir, problem)
    stop = StopRequest()
    stop.listen()
    try:
        manager = ExpManager(
            config,
            run_dir,
            stop,
            _progress(config, console),
            report=lambda: write_report(console, config, run_dir, is_sweep=is_sweep),
            on_evaluation=None if watch is None else lambda record, _: watch(record, stop),
        )
        result = manager.train()
        print_result(console, config, run_dir, result, manager.files, is_sweep=is_sweep)
    except ConfigError:
        if plan.start is not Start.RESUME:
            run_dir.discard()
        raise
    except RunError as error:
        raise RunError(f"{error} {_what_is_left(run_dir)}") from error
    finally:
        stop.restore()
    return _exit_code(result, stop.signal_number)


def _what_is_left(run_dir: RunDir) -> str:
    """Say where a run that broke off can go on from."""
    steps = run_dir.checkpoints().steps()
    if not steps:
        return f"There is no checkpoint yet; {run_dir.path} has the logs."
    step = f"{steps[-1]:,}"
    return f"Its last checkpoint is of step {step}: rlzoo-plus resume {run_dir.path}"


def _take_run_dir(plan: Plan, command: str, problem: str | None) -> tuple[RunDir, RunLock]:
    """Lock the directory and write down what is known before the first step.

    Raises:
        BusyError: Another process was faster.
    """
    from rlzoo_plus.artifacts.run_dir import new_run_dir

    config = plan.config
    run_dir = plan.run_dir
    if plan.start is Start.RESTART and run_dir is not None:
        with run_dir.lock as old:
            if not old.acquire():
                raise BusyError(f"run_dir={run_dir.path}: another run has just started there.")
            move_aside(run_dir)
        run_dir.path.mkdir(parents=True, exist_ok=True)
    if run_dir is None:
        run_dir = new_run_dir(OUTPUTS, str(config.env.name), config.algo.name, config.seed)
    lock = run_dir.lock
    if not lock.acquire() or (plan.start is not Start.RESUME and run_dir.has_begun()):
        lock.release()
        raise BusyError(f"run_dir={run_dir.path}: another run has just started there.")
    if plan.start is Start.RESUME:
        run_dir.go_on(config.model_dump(), command)
    else:
        run_dir.start(config.model_dump(), command, _provenance(config, problem))
    return run_dir, lock


def _provenance(config: RunConfig, problem: str | None) -> dict[str, Any]:
    from rlzoo_plus.artifacts.provenance import collect_provenance
    from rlzoo_plus.config.resolve import config_hash
    from rlzoo_plus.envs.seeding import SeedStreams

    return {
        **collect_provenance(Path(__file__), _user_files(config)),
        "seed_streams": SeedStreams.from_seed(config.seed).report(),
        "config_hash": config_hash(config),
        "exact_resume_problem": problem,
    }


def _user_files(config: RunConfig) -> list[Path]:
    """Return a file of each package of the user's that the run imports."""
    from importlib.util import find_spec

    from rlzoo_plus.envs.single import foreign_code

    callbacks = [name for entry in config.callbacks for name in _names(entry)]
    files = []
    for name in [*foreign_code(config.env), *config.algo.packages, *callbacks]:
        try:
            spec = find_spec(name.split(".")[0])
        except (ImportError, ValueError):
            continue
        # A folder without __init__.py has no file.
        folders = list(spec.submodule_search_locations or ()) if spec is not None else []
        origin = None if spec is None else spec.origin
        files += [Path(place) for place in ([origin] if origin else folders)]
    return [file for file in files if file.exists()]


def _names(entry: str | dict[str, Any]) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry)


def _progress(config: RunConfig, console: Console) -> ProgressCallback:
    from rlzoo_plus.callbacks.progress import BarProgress, LineProgress

    wanted = config.log.progress
    has_bar = sys.stdout.isatty() if wanted == "auto" else bool(wanted)
    if has_bar and not config.log.sb3:
        label = f"{config.algo.name} on {config.env.name}"
        return BarProgress(config.n_timesteps, console, label)
    return LineProgress(config.n_timesteps)


def _exit_code(result: TrainResult, signal_number: int | None) -> int:
    if result.state != "interrupted":
        return 0
    if signal_number is None:
        return EXIT_ENDED
    return EXIT_SIGINT if signal_number == signal.SIGINT else EXIT_SIGTERM
