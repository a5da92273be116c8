"""The training of a planned run, here or as a job in a process of its own."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.errors import (
    RUN_ERROR,
    USER_ERROR,
    ConfigError,
    RunError,
)
from rlzoo_plus.infra.launcher import EXIT_BUSY, EXIT_ENDED, EXIT_SIGINT, EXIT_SIGTERM
from rlzoo_plus.runs.claim import check_before_building, claim_run_dir
from rlzoo_plus.runs.plan import BusyError, Plan, Start, plan_run
from rlzoo_plus.runs.terminal import (
    make_progress,
    plain_console,
    print_header,
    print_result,
    set_up_logging,
)

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.result import TrainResult
    from rlzoo_plus.artifacts.run_dir import RunDir
    from rlzoo_plus.callbacks import ProgressCallback, StopRequest

# Follows the evaluations of a run, and may ask it to stop.
Watcher = Callable[[dict[str, Any], "StopRequest"], None]


@dataclass(frozen=True)
class Outcome:
    """How a training in this process ended.

    Attributes:
        run_dir: Its directory.
        result: As in result.json.
        signal_number: The signal that ended it, None if none did.
    """

    run_dir: RunDir
    result: TrainResult
    signal_number: int | None

    @property
    def exit_code(self) -> int:
        """0, or 130 or 75 after a signal, or 74 if the run's watcher has asked to stop."""
        if self.result.state != "interrupted":
            return 0
        if self.signal_number is None:
            return EXIT_ENDED
        return EXIT_SIGINT if self.signal_number == signal.SIGINT else EXIT_SIGTERM


def run_job(data: dict[str, Any], watch: Watcher | None = None) -> int:
    """Train as a job's configuration says; return the exit code of `train`, or `EXIT_BUSY`.

    Args:
        data: `config`, checked once already and complete, and `command`, for the run's records.
        watch: Follows the evaluations.
    """
    from rlzoo_plus.artifacts.secrets import redact
    from rlzoo_plus.config.own_code import import_packages
    from rlzoo_plus.config.resolve import validate_config

    try:
        config = validate_config(data["config"])
        import_packages(config)
        console = plain_console()
        set_up_logging(config.log.level, console)
        plan = plan_run(config)
        if plan.start is Start.DONE:
            return 0
        problem = check_before_building(plan)
        outcome = run_plan(plan, problem, console, data["command"], is_sweep=True, watch=watch)
        return outcome.exit_code
    except BusyError:
        return EXIT_BUSY
    except (ConfigError, RunError) as error:
        print(f"error: {printable_lines(redact(str(error)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR


def run_plan(
    plan: Plan,
    problem: str | None,
    console: Console,
    command: str,
    *,
    is_sweep: bool = False,
    watch: Watcher | None = None,
    stop: StopRequest | None = None,
    claimed: Callable[[RunDir], None] = lambda _: None,
) -> Outcome:
    """Train as planned, after `check_before_building`.

    Args:
        plan: What is to be done.
        problem: Why the run could not be resumed bit for bit, None if it could.
        console: Where the course of the run is printed.
        command: For the run's records.
        is_sweep: Many runs share the console: no video is made unless it is asked for.
        watch: Follows the evaluations.
        stop: How it is asked to end, with progress as lines; None to listen to signals instead.
        claimed: Called with the directory once it is this run's.

    Raises:
        RunError: The run broke off.
    """
    # Only now the second that importing torch takes.
    from rlzoo_plus.agents.factory import check_device
    from rlzoo_plus.callbacks import check_user_callbacks
    from rlzoo_plus.envs.single import scheduled

    plan = replace(plan, config=scheduled(plan.config))
    check_device(plan.config.device)
    check_user_callbacks(plan.config)
    from rlzoo_plus.callbacks import StopRequest

    run_dir, lock = claim_run_dir(plan, command, problem)
    claimed(run_dir)
    listening = StopRequest()
    if stop is None:
        listening.listen()
    try:
        print_header(console, plan.config, run_dir, problem)
        progress = make_progress(plan.config, console, bar=None if stop is None else False)
        return _train(plan, run_dir, console, stop or listening, progress, is_sweep, watch)
    finally:
        listening.restore()
        lock.release()


def _train(
    plan: Plan,
    run_dir: RunDir,
    console: Console,
    stop: StopRequest,
    progress: ProgressCallback,
    is_sweep: bool,
    watch: Watcher | None,
) -> Outcome:
    from rlzoo_plus.runs.exp_manager import ExpManager
    from rlzoo_plus.runs.media import write_media

    config = plan.config
    try:
        manager = ExpManager(
            config,
            run_dir,
            stop,
            progress,
            report=lambda: write_media(console, config, run_dir, is_sweep=is_sweep),
            on_evaluation=None if watch is None else lambda record, _: watch(record, stop),
        )
        result = manager.train()
    except ConfigError:
        if plan.start is not Start.RESUME:
            run_dir.discard()
        raise
    except RunError as error:
        raise RunError(f"{error} {_what_is_left(run_dir)}") from error
    print_result(console, config, run_dir, result, manager.files)
    return Outcome(run_dir, result, stop.signal_number)


def _what_is_left(run_dir: RunDir) -> str:
    """Say where a run that broke off can go on from."""
    steps = run_dir.checkpoints().steps()
    if not steps:
        return f"There is no checkpoint yet; {run_dir.path} has the logs."
    step = f"{steps[-1]:,}"
    return f"Its last checkpoint is of step {step}: rlzoo-plus resume {run_dir.path}"


def interruptible(work: Callable[[], None], stop: StopRequest) -> None:
    """Do work that Ctrl-C, or a notebook's stop button, asks to end cleanly.

    No signal handler is taken: the work is done in a thread, so that `KeyboardInterrupt` reaches
    this one, which passes it on. A second one is raised at once, and the work ends by itself.

    Raises:
        KeyboardInterrupt: It came, and the work has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    raised: list[BaseException] = []
    ended = threading.Event()

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=guarded, name="rlzoo-plus", daemon=True)
    thread.start()
    interrupt: KeyboardInterrupt | None = None
    # Not `join`: Python 3.11 takes a thread for ended if it is interrupted there.
    while not ended.is_set():
        try:
            ended.wait(0.5)
        except KeyboardInterrupt as error:
            if interrupt is not None:
                raise
            interrupt, stop.signal_number = error, signal.SIGINT
    if raised:
        raise raised[0]
    if interrupt is not None:
        raise interrupt
