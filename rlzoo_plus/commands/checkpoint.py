"""`rlzoo-plus checkpoint`: ask a training process for a checkpoint, and wait for it."""

from __future__ import annotations

import time

from rlzoo_plus.analysis.find_run import find_place
from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.artifacts.inside import check_inside
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.arguments import RUN_HELP
from rlzoo_plus.commands.typed import command_parser
from rlzoo_plus.errors import ConfigError


def main(arguments: list[str]) -> int:
    """Ask, wait, and print the checkpoint's directory."""
    parser = command_parser(
        "checkpoint",
        "Ask the process that trains in a run directory for a checkpoint, wait until it is "
        "written, and print its path. The signal SIGUSR1 does the same without waiting.",
        "outputs/halfcheetah_bullet/sac/...",
    )
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="SECONDS", help="longest wait (default 600)"
    )
    options = parser.parse_args(arguments)
    place = find_place(options.run)
    run = RunDir(place.path)
    if not run.exists():
        raise ConfigError(f"{run.path} holds no run. `rlzoo-plus runs` lists the runs there are.")
    check_inside(run.path, run.lock.path)
    if not run.lock.is_held_elsewhere():
        state = run.read_status().get("state", "unknown")
        steps = run.checkpoints().steps()
        has = f"Its newest checkpoint is {steps[-1]:,}." if steps else "It has no checkpoint."
        where = place.url or run.path
        raise ConfigError(f"{where}: nothing is training there (state: {state}). {has}")
    try:
        write_atomic(run.checkpoint_request, "")
    except OSError as error:
        raise ConfigError(f"{run.path}: the request cannot be written: {error}") from error
    _wait_for_answer(run, options.timeout)
    step = run.checkpoints().steps()[-1]
    print(run.checkpoints().root / f"{step:012d}")
    return 0


def _wait_for_answer(run: RunDir, timeout_s: float) -> None:
    """Return when the training process has removed the request: the checkpoint is written."""
    deadline = time.monotonic() + timeout_s
    while run.checkpoint_request.exists():
        is_late, has_ended = time.monotonic() > deadline, not run.lock.is_held_elsewhere()
        if (is_late or has_ended) and run.checkpoint_request.exists():
            run.checkpoint_request.unlink(missing_ok=True)
            late = (
                f"no checkpoint within {timeout_s:g} s; one is written only between two rollouts. "
                "Wait longer with --timeout."
            )
            ended = "the training ended before it wrote a checkpoint."
            raise ConfigError(f"{run.path}: {late if is_late else ended}")
        time.sleep(0.2)
