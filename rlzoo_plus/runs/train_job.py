"""Trains a planned run: checks it, claims its directory, and trains, here or as a job."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from dataclasses import replace
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus import accelerators
from rlzoo_plus.analysis.find_run import trust_option
from rlzoo_plus.artifacts.encryption import cipher_of
from rlzoo_plus.artifacts.provenance import collect_provenance
from rlzoo_plus.artifacts.result import ANOTHER_ACTED
from rlzoo_plus.artifacts.run_dir import INTERRUPTED, OUTPUTS, RunDir, RunLock, new_run_dir
from rlzoo_plus.artifacts.secrets import redact
from rlzoo_plus.artifacts.untrusted import printable_lines
from rlzoo_plus.config.own_code import import_packages, own_modules
from rlzoo_plus.config.resolve import config_hash, validate_config
from rlzoo_plus.envs.engine import engine_version
from rlzoo_plus.envs.environment_version import environment_version
from rlzoo_plus.envs.seeding import SeedStreams
from rlzoo_plus.errors import (
    EXIT_BUSY,
    EXIT_ENDED,
    EXIT_SIGINT,
    EXIT_SIGTERM,
    RUN_ERROR,
    USER_ERROR,
    ConfigError,
    RunError,
)
from rlzoo_plus.given import sources
from rlzoo_plus.processes import resume_gc
from rlzoo_plus.runs.plan import BusyError, Plan, Start, plan_run
from rlzoo_plus.runs.printing import (
    make_progress,
    plain_console,
    print_header,
    print_result,
    print_traceback,
    set_up_logging,
)
from rlzoo_plus.runs.store_sync import check_store, kept_in_store
from rlzoo_plus.tracking import check_tracker

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.artifacts.result import TrainResult
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.training.callbacks import StopRequest

log = logging.getLogger(__name__)
# Gets each evaluation record of a run, and may ask the run to stop.
Watcher = Callable[[Mapping[str, Any], "StopRequest"], None]


def run_job(data: dict[str, Any], watch: Watcher | None = None) -> int:
    """Train a job; return the exit code of `train`, or `EXIT_BUSY`.

    Args:
        data: `config`, already checked and complete, and `command`, for the run's records.
        watch: Gets each evaluation record.
    """
    try:
        config = validate_config(data["config"])
        import_packages(config)
        console = plain_console()
        set_up_logging(config.log.level, console)
        plan = plan_run(config)
        if plan.start is Start.DONE:
            return 0
        problem = check_before_building(plan)
        return run_plan(plan, problem, console, data["command"], is_sweep=True, watch=watch)[2]
    except BusyError:
        return EXIT_BUSY
    except (ConfigError, RunError) as error:
        print_traceback(error)
        print(f"error: {printable_lines(redact(str(error)))}", file=sys.stderr)
        return RUN_ERROR if isinstance(error, RunError) else USER_ERROR


def check_before_building(plan: Plan) -> str | None:
    """Check what can be checked without torch, so that a mistake is reported at once.

    Returns:
        Why the run cannot be resumed bit for bit, None if it can.
    """
    from rlzoo_plus.envs.fit import check_memory, inspect_env

    facts = inspect_env(plan.config)
    for text in facts.warnings:
        log.warning(text)
    check_memory(plan.config, facts.observation_space, facts.action_space)
    if plan.config.tracker is not None:
        check_tracker(plan.config.tracker)
    check_store(plan.config)
    if plan.run_dir is not None:
        path = plan.run_dir.path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            is_file = path.is_file() or isinstance(error, FileExistsError)
            reason = "it is a file" if is_file else error.strerror
            raise ConfigError(f"run_dir={path}: {reason}. Choose another directory.") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise ConfigError(f"run_dir={path} cannot be written to. Choose another directory.")
    return ANOTHER_ACTED if plan.config.asynchronous else facts.replay_problem


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
) -> tuple[RunDir, TrainResult, int]:
    """Train as planned, after `check_before_building`.

    Args:
        plan: What to do.
        problem: Why the run cannot be resumed bit for bit, None if it can.
        console: Where the header, the progress and the result are printed.
        command: For the run's records.
        is_sweep: Many runs share the console: a video is recorded only if asked for.
        watch: Gets each evaluation record.
        stop: How it is asked to end, with progress as lines; None to listen to signals instead.
        claimed: Called with the run directory once this process has claimed it.

    Returns:
        The run directory, the result, and the exit code: 0, or 130 or 75 after a signal, or 74 if
        the watcher or a request in the store has asked to stop, or 73 if another worker has the
        run in the store.

    Raises:
        RunError: The run failed.
    """
    # Importing torch takes a second, so these come after the checks.
    accelerators.before_torch(plan.config)
    from rlzoo_plus.agents.devices import check_device
    from rlzoo_plus.envs.single import scheduled
    from rlzoo_plus.training.callbacks import StopRequest, check_user_callbacks
    from rlzoo_plus.training.exp_manager import manager_of
    from rlzoo_plus.training.media import write_media

    resume_gc()
    config = scheduled(plan.config)
    plan = replace(plan, config=config)
    check_device(config.device)
    check_user_callbacks(config)
    cipher_of(config.encryption)
    run_dir, lock = claim_run_dir(plan, command, problem)
    claimed(run_dir)
    request = stop or StopRequest()
    if stop is None:
        request.listen()
    is_resumed = plan.start is Start.RESUME
    # A job of a sweep has the name of its content: the same one may be in the store already.
    may_replace = is_sweep or plan.start is not Start.NEW
    try:
        trust = trust_option(config, to_train=True)
        keep = kept_in_store(
            config, run_dir, request, console, resumes=is_resumed, take_ended=may_replace
        )
        with keep as sync, _explained(run_dir, is_resumed=is_resumed, trust=trust):
            print_header(console, config, run_dir, problem)
            manager = manager_of(config)(
                config,
                run_dir,
                request,
                make_progress(config, console, bar=None if stop is None else False),
                report=lambda: write_media(console, config, run_dir, is_sweep=is_sweep),
                on_evaluation=None if watch is None else lambda record, _: watch(record, request),
            )
            result = manager.train()
            print_result(console, config, result, manager.files)
        if result.state != INTERRUPTED:
            return run_dir, result, 0
        if sync is not None and sync.is_lost:
            return run_dir, result, EXIT_BUSY
        codes: dict[int | None, int] = {None: EXIT_ENDED, signal.SIGINT: EXIT_SIGINT}
        return run_dir, result, codes.get(request.signal_number, EXIT_SIGTERM)
    finally:
        if stop is None:
            request.restore()
        lock.release()


def begin_run(config: RunConfig, command: str, save: Callable[[RunDir], None]) -> RunDir:
    """Make the directory of a new run; `save` writes the checkpoint from which it goes on.

    Raises:
        ConfigError: `run_dir` holds a run.
    """
    plan = plan_run(config)
    if plan.start not in (Start.NEW, Start.RESTART):
        raise ConfigError(
            f"run_dir={config.run_dir} holds a run, and an agent that was changed begins a new "
            "one: leave run_dir out, or choose another directory."
        )
    run_dir, lock = claim_run_dir(plan, command, check_before_building(plan))
    try:
        save(run_dir)
    except BaseException:
        run_dir.discard()
        raise
    finally:
        lock.release()
    return run_dir


@contextlib.contextmanager
def _explained(run_dir: RunDir, *, is_resumed: bool, trust: str) -> Iterator[None]:
    """Discard a new run that is refused, and say from where one that failed goes on.

    `trust` is the option that the command for that needs, or empty.
    """
    try:
        yield
    except ConfigError:
        if not is_resumed:
            run_dir.discard()
        raise
    except RunError as error:
        steps = run_dir.checkpoints().steps()
        kept = f"There is no checkpoint yet; {run_dir.path} has the logs."
        if steps:
            resume = f"rlzoo-plus resume {shlex.quote(str(run_dir.path))}{trust}"
            kept = f"Its last checkpoint: step {steps[-1]:,}. {resume}"
        raise RunError(f"{error} {kept}") from error


def claim_run_dir(plan: Plan, command: str, problem: str | None) -> tuple[RunDir, RunLock]:
    """Lock the run directory, and write what is known before the first step.

    Raises:
        BusyError: Another process was faster.
    """
    from rlzoo_plus.envs.single import defaults_of

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
        run_dir.record_resume(config.whole(), command, defaults_of(config.env))
    else:
        provenance = _provenance(config, problem)
        run_dir.start(config.whole(), command, provenance, defaults_of(config.env))
    return run_dir, lock


def move_aside(run_dir: RunDir) -> Path:
    """Rename a run directory, so that a new run can take its place; return the new path."""
    stem = f"{run_dir.path.name}-before-{datetime.now():%Y-%m-%d_%H-%M-%S}"
    target = run_dir.path.with_name(stem)
    number = 1
    while target.exists():
        number += 1
        target = run_dir.path.with_name(f"{stem}-{number}")
    return run_dir.path.rename(target)


def _provenance(config: RunConfig, problem: str | None) -> dict[str, Any]:
    # A file of each of the user's own packages; a folder without __init__.py stands for itself.
    files: list[Path] = []
    for name in own_modules(config):
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            continue
        if spec is not None:
            places = [spec.origin] if spec.origin else spec.submodule_search_locations or []
            files += [Path(place) for place in places if Path(place).exists()]
    objects = {name: redact(text or "") for name, text in sources(config.model_dump()).items()}
    return {
        **collect_provenance(Path(__file__), files),
        **({"objects": objects} if objects else {}),
        **({"engine": engine} if (engine := engine_version(config.env)) else {}),
        **({"environment": version} if (version := environment_version(config.env)) else {}),
        "seed_streams": SeedStreams.of(config).report(),
        "config_hash": config_hash(config),
        "exact_resume_problem": problem,
    }


def interruptible(
    work: Callable[[], None], stop: StopRequest, meanwhile: Callable[[], None]
) -> None:
    """Do work that Ctrl-C, or a notebook's stop button, asks to end cleanly.

    The work runs in a thread, while this one calls `meanwhile` twice a second. No signal handler
    is installed: `KeyboardInterrupt` reaches this thread, which passes it on. A second one is
    raised at once, and the work ends by itself.

    Raises:
        KeyboardInterrupt: It came, and the work has ended.
    """
    if threading.current_thread() is not threading.main_thread():
        work()
        return
    done: futures.Future[None] = futures.Future()

    def guarded() -> None:
        try:
            work()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=guarded, name="rlzoo-plus", daemon=True).start()
    interrupt: KeyboardInterrupt | None = None
    # Not `Thread.join`: Python 3.11 takes a thread for ended if it is interrupted there.
    while not done.done():
        try:
            futures.wait([done], timeout=0.5)
            meanwhile()
        except KeyboardInterrupt as error:
            if interrupt is not None:
                raise
            interrupt, stop.signal_number = error, signal.SIGINT
    done.result()
    if interrupt is not None:
        raise interrupt
