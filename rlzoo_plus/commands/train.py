"""`rlzoo-plus train`: compose, check, train, report; `-m` is in `multirun`."""

from __future__ import annotations

import signal
import sys
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
from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

    from rlzoo_plus.artifacts.lock import RunLock
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.callbacks import ProgressCallback
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.exp_manager import TrainResult

OUTPUTS = Path("outputs")
EXIT_SIGINT, EXIT_SIGTERM = 130, 75


def main(arguments: list[str]) -> int:
    """Train as the command line says; return the exit code."""
    if any(argument in ("-h", "--help") for argument in arguments):
        from rlzoo_plus.commands.train_help import train_help

        print(train_help(arguments))
        return 0
    if any(argument in ("-m", "--multirun") for argument in arguments):
        from rlzoo_plus.commands.multirun import main as multirun

        return multirun(arguments)
    from rlzoo_plus.config.compose import run_hydra

    codes: list[int] = []
    mistakes: list[ConfigError] = []

    def job(cfg: DictConfig) -> None:
        # Hydra would add a line of its own to an error that passes through it.
        try:
            codes.append(_run_single(cfg, arguments))
        except ConfigError as error:
            mistakes.append(error)

    run_hydra(job, arguments)
    if mistakes:
        raise mistakes[0]
    return max(codes, default=0)


def compose_run(overrides: list[str]) -> RunConfig:
    """Compose and check a configuration as `train` does, without training.

    Raises:
        ConfigError: Something in it is wrong.
    """
    from rlzoo_plus.config.compose import run_hydra

    configs: list[RunConfig] = []
    mistakes: list[ConfigError] = []

    def job(cfg: DictConfig) -> None:
        try:
            configs.append(resolve_cfg(cfg, overrides)[0])
        except ConfigError as error:
            mistakes.append(error)

    run_hydra(job, overrides)
    if mistakes:
        raise mistakes[0]
    return configs[0]


def _run_single(cfg: DictConfig, arguments: list[str]) -> int:
    config, warnings = resolve_cfg(cfg, arguments)
    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.commands.console import make_console, set_up_logging

    console = make_console()
    set_up_logging(config.log.level, console)
    plan = plan_run(config)
    if plan.start is Start.DONE:
        print_done(console, plan)
        return 0
    problem = check_before_building(plan)
    if config.sweep is not None:
        warnings.append(f"sweep={config.sweep} is for sweeps: add -m to start one")
    for warning in warnings:
        console.print(f"[yellow]note:[/] {warning}")
    command = command_line(["rlzoo-plus", "train", *arguments])
    return run_plan(plan, problem, console, command, is_sweep=False)


def resolve_cfg(cfg: DictConfig, arguments: list[str]) -> tuple[RunConfig, list[str]]:
    """Check what Hydra composed; return the configuration and what the user should know.

    Raises:
        ConfigError: Something in it is wrong.
    """
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    from rlzoo_plus.config.compose import config_dirs, group_options, missing_tuned
    from rlzoo_plus.config.resolve import resolve
    from rlzoo_plus.config.suggest import unknown_name

    choices = dict(HydraConfig.get().runtime.choices)
    dirs = config_dirs(arguments)
    missing = missing_tuned(choices, dirs)
    if missing and any(argument.lstrip("+").startswith("tuned=") for argument in arguments):
        raise ConfigError(unknown_name("tuned", missing, group_options("tuned", dirs)))
    values = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(values, dict)
    resolved = resolve({str(k): v for k, v in values.items()}, env_name=choices.get("env"))
    notes = list(resolved.warnings)
    if missing:
        notes.insert(
            0,
            f"no tuned values for {missing} (conf/tuned/{missing}.yaml): using the defaults of "
            f"conf/algo/{choices.get('algo')}.yaml",
        )
    return resolved.config, notes


def check_before_building(plan: Plan) -> str | None:
    """Check what can be wrong without torch, so that a mistake is answered at once.

    Returns:
        Why the run could not be resumed bit for bit, None if it could.
    """
    from rlzoo_plus.envs.checks import inspect_env

    problem = inspect_env(plan.config).replay_problem
    if plan.run_dir is not None:
        try:
            plan.run_dir.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"run_dir={plan.config.run_dir} cannot be made: {error}") from error
    return problem


def run_plan(
    plan: Plan, problem: str | None, console: Console, command: str, *, is_sweep: bool = False
) -> int:
    """Train as planned, after `check_before_building`; return the exit code."""
    # Only now the second that importing torch takes.
    from rlzoo_plus.agents.factory import check_device
    from rlzoo_plus.callbacks import check_user_callbacks

    check_device(plan.config.device)
    check_user_callbacks(plan.config)
    run_dir, lock = _take_run_dir(plan, command, problem)
    try:
        return _train(plan, run_dir, console, problem, is_sweep=is_sweep)
    finally:
        lock.release()


def _train(
    plan: Plan, run_dir: RunDir, console: Console, problem: str | None, *, is_sweep: bool
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
        )
        result = manager.train()
        print_result(console, config, run_dir, result, manager.files, is_sweep=is_sweep)
    except ConfigError:
        if plan.start is not Start.RESUME:
            run_dir.discard()
        raise
    finally:
        stop.restore()
    return _exit_code(result, stop.signal_number)


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
        run_dir.go_on(config.model_dump(mode="json"), command)
    else:
        run_dir.start(config.model_dump(mode="json"), command, _provenance(config, problem))
    return run_dir, lock


def _provenance(config: RunConfig, problem: str | None) -> dict[str, Any]:
    from rlzoo_plus.artifacts.provenance import collect_provenance
    from rlzoo_plus.config.resolve import config_hash
    from rlzoo_plus.envs.seeding import SeedStreams

    return {
        **collect_provenance(Path(__file__)),
        "seed_streams": SeedStreams.from_seed(config.seed).report(),
        "config_hash": config_hash(config),
        "exact_resume": problem is None,
        "exact_resume_problem": problem,
    }


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
    return EXIT_SIGINT if signal_number == signal.SIGINT else EXIT_SIGTERM
