"""What a run shows around its training: a header, and at the end curve, film, table, next steps."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.config.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.exp_manager import TrainResult

log = logging.getLogger(__name__)


def print_header(
    console: Console, config: RunConfig, run_dir: RunDir, problem: str | None = None
) -> None:
    """Say what is about to be trained, where it goes, and if it cannot go on exactly after a kill.

    Args:
        console: Where to.
        config: The run.
        run_dir: Its directory.
        problem: Why it cannot be resumed bit for bit, None if nothing is known against it.
    """
    envs = f"{config.n_envs} environment{'s' if config.n_envs > 1 else ''}"
    console.print(
        f"[bold]{config.algo.name}[/] on [bold]{config.env.id}[/]: {config.n_timesteps:,} steps, "
        f"{envs}, seed {config.seed}"
    )
    console.print(f"run directory: {run_dir.path}")
    if problem is not None:
        console.print(f"exact resume: no, because {problem}", markup=False)


def write_report(
    console: Console, config: RunConfig, run_dir: RunDir, *, is_sweep: bool
) -> list[Path]:
    """Draw the learning curve and film the best policy; return the files.

    What cannot be drawn or filmed is said, and never fails a run that has trained.
    """
    files = []
    if config.report.plot and run_dir.evaluations_file.is_file():
        files += _try("learning curve", lambda: _plot(run_dir))
    wanted = config.report.video
    if wanted is True or (wanted == "auto" and not is_sweep and run_dir.best.is_dir()):
        console.print("filming the best policy ...")
        files += _try("film", lambda: _film(config, run_dir))
    return files


def print_result(
    console: Console,
    config: RunConfig,
    run_dir: RunDir,
    result: TrainResult,
    files: list[Path],
    *,
    is_sweep: bool,
) -> None:
    """Print the closing table, the files and the commands to type next."""
    console.print()
    table = _Lines(console)
    table.add_row("state", f"{result.state}: {result.reason}")
    rate = result.num_timesteps / max(result.training_time_s, 1e-9)
    table.add_row(
        "trained",
        f"{result.num_timesteps:,} steps in {result.training_time_s:.1f} s ({rate:,.0f} steps/s)",
    )
    for name, record in (("best", result.best), ("final", result.final)):
        if record is not None:
            success = record["success_rate"]
            extra = "" if success is None else f", success {100 * success:.0f}%"
            table.add_row(
                f"{name} evaluation",
                f"mean return {record['mean_return']:.1f} +- {record['std_return']:.1f}{extra}, "
                f"at step {record['step']:,}",
            )
    if result.resumed_at:
        steps = ", ".join(f"{step:,}" for step in result.resumed_at)
        exactly = "exactly as if never stopped" if result.exact is True else str(result.exact)
        if not result.exact:
            exactly = f"not exactly, since step {result.inexact_since:,}: "
            exactly += result.inexact_because[0]
        table.add_row("resumed", f"at step {steps}; {exactly}")
    if result.solved is not None:
        word = "[green]yes[/]" if result.solved else "[yellow]not yet[/]"
        table.add_row("solved", f"{word} (mean return {config.env.solved_return:g} is asked for)")
    for path in files:
        table.add_row("seen", str(path))
    if not is_sweep:
        console.print(_next_commands(config, run_dir, result.state))


class _Lines:
    """Rows of a name and a text; not a table, which would break a long path over lines."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def add_row(self, name: str, text: str) -> None:
        """Print a row."""
        self.console.print(f"{name:<18}{text}")


def _saved_policy(run_dir: RunDir) -> str:
    """Return the option that chooses a policy which is there: the best needs none."""
    if run_dir.best.is_dir():
        return ""
    if run_dir.final.is_dir():
        return " --which final"
    return "".join(f" --which {step}" for step in run_dir.checkpoints().steps()[-1:])


def _next_commands(config: RunConfig, run_dir: RunDir, state: str) -> str:
    from rlzoo_plus.envs.single import foreign_code

    program = "rlzoo-plus"
    options = _saved_policy(run_dir)
    options += " --trust" if foreign_code(config.env) or config.algo.packages else ""
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


def _try(what: str, make: Callable[[], Path]) -> list[Path]:
    try:
        return [make()]
    except ConfigError as error:
        log.warning("no %s: %s", what, error)
    except Exception as error:
        log.warning("no %s: %s: %s", what, type(error).__name__, error)
    return []


def _plot(run_dir: RunDir) -> Path:
    from rlzoo_plus.analysis.curves import plot_learning_curve

    out = run_dir.plots / "learning_curve.png"
    plot_learning_curve([run_dir], out)
    return out


def _film(config: RunConfig, run_dir: RunDir) -> Path:
    from rlzoo_plus.commands.open_run import open_run
    from rlzoo_plus.commands.record import film

    opened = open_run(str(run_dir.path), "best", trust=True)
    out = run_dir.videos / "best.mp4"
    label = f"{config.algo.name}, best, step {opened.step:,}"
    film(config, [(label, opened.policy)], out, seconds=config.report.video_seconds)
    return out
