"""What a run prints: a header, log lines, progress, and the result."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.artifacts.result import EXTENDED
from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.config.cadence import evaluation_steps, longest_evaluated, trained_steps

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.result import TrainResult
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.training.callbacks import ProgressCallback

_QUIET = ("matplotlib", "PIL", "gymnasium", "urllib3", "tensorboard", "git")


def plain_console(*, quiet: bool = False) -> Console:
    """Return a console that prints plain lines, for logs and notebooks; `quiet` prints nothing."""
    from rich.console import Console

    return Console(highlight=False, width=200, soft_wrap=True, force_jupyter=False, quiet=quiet)


def set_up_logging(level: str, console: Console) -> None:
    """Send log lines of this package to the console; warnings and errors show their level.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        console: The one that draws the progress bar, so that lines do not tear it.
    """
    root = logging.getLogger()
    root.handlers[:] = [_ConsoleHandler(console)]
    root.setLevel(logging.WARNING)
    for name in ("rlzoo_plus", "robots"):
        logging.getLogger(name).setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.captureWarnings(True)


def print_traceback(error: BaseException) -> None:
    """Print the whole traceback of an error to stderr, with `log.level=debug`."""
    if logging.getLogger("rlzoo_plus").isEnabledFor(logging.DEBUG):
        print(printable_lines(redact("".join(traceback.format_exception(error)))), file=sys.stderr)


@contextlib.contextmanager
def lines_shown(level: str, console: Console) -> Iterator[None]:
    """Print this package's log lines of this thread; the root logger stays as it is."""
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
    """Return a bar in a terminal, else a line for each evaluation; `bar=False` forbids a bar."""
    from rlzoo_plus.training.callbacks.progress_display import BarProgress, LineProgress

    wanted = config.log.progress
    has_bar = sys.stdout.isatty() if wanted == "auto" else bool(wanted)
    if bar is not False and has_bar and not config.log.sb3:
        label = f"{config.algo.name} on {config.env.name}"
        return BarProgress(trained_steps(config), console, label)
    return LineProgress(trained_steps(config))


def print_header(
    console: Console, config: RunConfig, run_dir: RunDir, problem: str | None = None
) -> None:
    """Print what is trained, its directory, how it is evaluated, and a problem of exact resume."""
    from rlzoo_plus.envs.single import longest_episode

    envs = f"{config.n_envs} environment{'s' if config.n_envs > 1 else ''}"
    steps, rounded = trained_steps(config), ""
    if steps != config.n_timesteps:
        rounded = f" (n_timesteps={config.n_timesteps}, rounded up to whole rollouts)"
    console.print(
        f"[bold]{config.algo.name}[/] on [bold]{config.env.id}[/]: {steps:,} steps{rounded}, "
        f"{envs}, seed {config.seed}"
    )
    console.print(f"run directory: {run_dir.path}")
    schedule = _schedule(config, longest_episode(config))
    console.print(f"evaluation: {schedule}", markup=False)
    if problem is not None:
        console.print(f"exact resume: no, because {problem}", markup=False)


def _schedule(config: RunConfig, limit: int | None) -> str:
    """Return when evaluations are made, and how many steps they take; `limit` is the time limit."""
    every, most = config.eval.every_steps, longest_evaluated(config, limit)
    if every is None:
        return "none"
    schedule = f"every {every:,} steps, {_episodes(int(config.eval.episodes))}"
    if limit is None and config.eval.max_episode_steps == "auto":
        # They end by themselves: the cut says nothing of how long they are.
        return f"{schedule} of unknown length" + (f", cut after {most:,} steps" if most else "")
    played = evaluation_steps(config, limit)
    if played is None:
        return f"{schedule} of unknown length"
    share = played / trained_steps(config)
    return f"{schedule}: at most {played:,} steps, {share:.0%} of the training steps"


def _episodes(count: int) -> str:
    return f"{count} episode{'s' if count > 1 else ''}"


def print_result(
    console: Console, config: RunConfig, result: TrainResult, files: list[Path]
) -> None:
    """Print the outcome of a run and its files."""

    def row(name: str, text: str) -> None:
        # Not a Rich table, which would break long paths over lines.
        console.print(f"{name:<18}{text}")

    console.print()
    row("state", f"{result.state}: {result.reason}")
    rate = result.num_timesteps / max(result.training_time_s, 1e-9)
    steps = f"{result.num_timesteps:,} steps"
    row("trained", f"{steps} in {result.training_time_s:.1f} s ({rate:,.0f} steps/s)")
    for name, record in (("best", result.best), ("final", result.final)):
        if record is not None:
            success = record["success_rate"]
            extra = "" if success is None else f", success {100 * success:.0f}%"
            row(
                f"{name} evaluation",
                f"mean return {record['mean_return']:.1f} +- {record['std_return']:.1f}{extra}, "
                f"at step {record['step']:,} ({_episodes(len(record['returns']))})",
            )
    if result.resumed_at:
        steps = ", ".join(f"{step:,}" for step in result.resumed_at)
        exactly = "exactly as if never stopped" if result.exact is True else str(result.exact)
        if not result.exact:
            others = [text for text in result.inexact_because if not text.startswith(EXTENDED)]
            since = f"not exactly, since step {result.inexact_since:,}: "
            exactly = since + others[0] if others else result.inexact_because[-1]
        row("resumed", f"at step {steps}; {exactly}")
    if result.solved is not None:
        answer = "[green]yes[/]" if result.solved else "[yellow]not yet[/]"
        row("solved", f"{answer} (threshold {config.env.solved_return:g})")
    for path in files:
        row("curve" if path.suffix == ".png" else "video", str(path))
