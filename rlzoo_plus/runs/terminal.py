"""What a run prints around its training: a header, progress, log lines, and the closing table."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.config.cadence import evaluation_steps

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.result import TrainResult
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.callbacks import ProgressCallback
    from rlzoo_plus.config.schema import RunConfig

_QUIET = ("matplotlib", "PIL", "gymnasium", "urllib3", "tensorboard", "git")


def plain_console(*, quiet: bool = False) -> Console:
    """Return a console of plain lines, as logs and notebooks want them, or of none."""
    from rich.console import Console

    return Console(highlight=False, width=200, soft_wrap=True, force_jupyter=False, quiet=quiet)


def set_up_logging(level: str, console: Console) -> None:
    """Send log lines of this package to the console; warnings and errors say what they are.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        console: Shares the terminal with a progress bar without tearing it.
    """
    root = logging.getLogger()
    for handler in list(root.handlers):
        root.removeHandler(handler)
    root.addHandler(_ConsoleHandler(console))
    root.setLevel(logging.WARNING)
    logging.getLogger("rlzoo_plus").setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)


@contextlib.contextmanager
def lines_shown(level: str, console: Console) -> Iterator[None]:
    """Print log lines of this package and of this thread inside; the root logger stays as it is.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        console: Where to.
    """
    own, handler = logging.getLogger("rlzoo_plus"), _ConsoleHandler(console)
    thread = threading.get_ident()
    handler.addFilter(lambda record: record.thread == thread)
    before = own.level
    own.addHandler(handler)
    own.setLevel(level.upper())
    try:
        yield
    finally:
        own.removeHandler(handler)
        own.setLevel(before)


class _ConsoleHandler(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = redact(self.format(record))
            if record.levelno >= logging.WARNING:
                text = f"{record.levelname.lower()}: {text}"
            self.console.print(text, markup=False)
        except Exception:
            self.handleError(record)


def make_progress(
    config: RunConfig, console: Console, *, bar: bool | None = None
) -> ProgressCallback:
    """Return a bar in a terminal, else a line for each evaluation.

    Args:
        config: The run.
        console: Where the bar is drawn.
        bar: Whether it may be a bar; None as `log.progress` says.
    """
    from rlzoo_plus.callbacks.progress import BarProgress, LineProgress

    wanted = config.log.progress
    has_bar = sys.stdout.isatty() if wanted == "auto" else bool(wanted)
    if bar is not False and has_bar and not config.log.sb3:
        label = f"{config.algo.name} on {config.env.name}"
        return BarProgress(config.n_timesteps, console, label)
    return LineProgress(config.n_timesteps)


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
    console.print(f"evaluation: {_schedule(config)}", markup=False)
    if problem is not None:
        console.print(f"exact resume: no, because {problem}", markup=False)


def print_result(
    console: Console,
    config: RunConfig,
    run_dir: RunDir,
    result: TrainResult,
    files: list[Path],
) -> None:
    """Print the closing table and the files."""
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
                f"at step {record['step']:,} ({len(record['returns'])} episodes)",
            )
    if result.resumed_at:
        steps = ", ".join(f"{step:,}" for step in result.resumed_at)
        exactly = "exactly as if never stopped" if result.exact is True else str(result.exact)
        if not result.exact:
            exactly = f"not exactly, since step {result.inexact_since:,}: "
            exactly += result.inexact_because[0]
        table.add_row("resumed", f"at step {steps}; {exactly}")
    if result.solved is not None:
        answer = "[green]yes[/]" if result.solved else "[yellow]not yet[/]"
        table.add_row("solved", f"{answer} (threshold {config.env.solved_return:g})")
    for path in files:
        table.add_row("curve" if path.suffix == ".png" else "video", str(path))


def _schedule(config: RunConfig) -> str:
    """Say how often a run is evaluated, and what that costs."""
    from rlzoo_plus.envs.single import longest_episode

    every, episodes = config.eval.every_steps, config.eval.episodes
    if not isinstance(every, int):
        return "none"
    longest = longest_episode(config)
    text = f"every {every:,} steps, {episodes} episodes"
    played = evaluation_steps(config, longest)
    if played is None:
        return f"{text} of unknown length"
    return f"{text}: at most {played:,} steps, {played / config.n_timesteps:.0%} of the training's"


class _Lines:
    """Rows of a name and a text; not a table, which would break a long path over lines."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def add_row(self, name: str, text: str) -> None:
        """Print a row."""
        self.console.print(f"{name:<18}{text}")
