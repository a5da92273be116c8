"""`rlzoo-plus train`: compose, check, train, report; `-m` does so for each job of a sweep."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from rich.console import Console

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
    from rlzoo_plus.config.compose import iter_sweep_keys, run_hydra

    is_sweep = any(argument in ("-m", "--multirun") for argument in arguments)
    if is_sweep and "run_dir" in set(iter_sweep_keys(arguments)):
        raise ConfigError(
            "run_dir=... would be shared by all jobs of a sweep. Leave it out: each job gets a "
            "directory of its own."
        )
    codes: list[int] = []
    mistakes: list[ConfigError] = []

    def job(cfg: DictConfig) -> None:
        if {EXIT_SIGINT, EXIT_SIGTERM} & set(codes):
            return  # a signal ends the whole sweep
        # Hydra would add a line of its own to an error that passes through it.
        try:
            codes.append(_run_job(cfg, arguments, is_sweep=is_sweep))
        except ConfigError as error:
            mistakes.append(error)

    run_hydra(job, arguments)
    if mistakes:
        raise ConfigError("\n".join(dict.fromkeys(str(mistake) for mistake in mistakes)))
    return max(codes, default=0)


def _run_job(cfg: DictConfig, arguments: list[str], *, is_sweep: bool) -> int:
    config, warnings = _resolve(cfg, arguments)
    from rlzoo_plus.commands.console import make_console, set_up_logging

    console = make_console()
    set_up_logging(config.log.level, console)
    _check_before_building(config)
    for warning in warnings:
        console.print(f"[yellow]note:[/] {warning}")
    # Only now the second that importing torch takes.
    return _train(config, console, _command(arguments, is_sweep=is_sweep), is_sweep=is_sweep)


def _resolve(cfg: DictConfig, arguments: list[str]) -> tuple[RunConfig, list[str]]:
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


def _check_before_building(config: RunConfig) -> None:
    """Everything that can be wrong without torch, so that a mistake is answered at once."""
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.envs.checks import inspect_env

    inspect_env(config)
    if config.run_dir is None:
        return
    run_dir = RunDir(Path(config.run_dir))
    if run_dir.exists():
        state = run_dir.read_status().get("state", "unknown")
        raise ConfigError(
            f"run_dir={config.run_dir} already holds a run (state: {state}). "
            "Choose another directory, or leave run_dir out."
        )
    try:
        run_dir.path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"run_dir={config.run_dir} cannot be made: {error}") from error


def _train(config: RunConfig, console: Console, command: str, *, is_sweep: bool) -> int:
    from rlzoo_plus.agents.factory import check_device
    from rlzoo_plus.callbacks import StopRequest, check_user_callbacks
    from rlzoo_plus.commands.report import print_header, print_result, write_report
    from rlzoo_plus.exp_manager import ExpManager

    check_device(config.device)
    check_user_callbacks(config)
    run_dir = _start_run_dir(config, command)
    print_header(console, config, run_dir)
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
        run_dir.discard()
        raise
    finally:
        stop.restore()
    return _exit_code(result, stop.signal_number)


def _command(arguments: list[str], *, is_sweep: bool) -> str:
    """Return the command line of this run, ready to be pasted; of one job if it is a sweep."""
    from hydra.core.hydra_config import HydraConfig

    from rlzoo_plus.artifacts.provenance import command_line
    from rlzoo_plus.config.compose import config_options

    words = list(arguments)
    if is_sweep:
        overrides = [str(word).removeprefix("++") for word in HydraConfig.get().overrides.task]
        words = [*config_options(arguments), *overrides]
    return command_line(["rlzoo-plus", "train", *words])


def _start_run_dir(config: RunConfig, command: str) -> RunDir:
    from rlzoo_plus.artifacts.provenance import collect_provenance
    from rlzoo_plus.artifacts.run_dir import RunDir, new_run_dir
    from rlzoo_plus.config.resolve import config_hash
    from rlzoo_plus.envs.seeding import SeedStreams

    if config.run_dir is None:
        run_dir = new_run_dir(OUTPUTS, str(config.env.name), config.algo.name, config.seed)
    else:
        run_dir = RunDir(Path(config.run_dir))
    try:
        run_dir.claim()
    except FileExistsError:
        raise ConfigError(
            f"run_dir={config.run_dir}: another run has just started there. Choose another."
        ) from None
    provenance: dict[str, Any] = {
        **collect_provenance(Path(__file__)),
        "seed_streams": SeedStreams.from_seed(config.seed).report(),
        "config_hash": config_hash(config),
    }
    run_dir.start(config.model_dump(mode="json"), command, provenance)
    return run_dir


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
