"""`rlzoo-plus sweep`: look at a sweep, let it go on, try failed jobs again, stop it, tidy it."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.sweeps.ledger import Ledger

_WATCH_S = 1.0


def main(arguments: list[str]) -> int:
    """Do what is asked; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.sweeps.ledger import open_sweep

    code: int = options.action(open_sweep(options.sweep), options, make_console())
    return code


def _resume(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.states import JobState, look_at

    views = look_at(ledger.read())
    jobs = [view.job for view in views if view.state in (JobState.WAITING, JobState.RUNNING)]
    failed = [view.job for view in views if view.state is JobState.FAILED]
    code = _run(ledger, jobs, options, console)
    if failed and not code:
        console.print(f"{len(failed)} jobs had failed before, and were left alone")
        return 1
    return code


def _retry_failed(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.states import JobState, look_at

    views = look_at(ledger.read())
    jobs = [view.job for view in views if view.state is JobState.FAILED]
    return _run(ledger, jobs, options, console)


def _run(
    ledger: Ledger, jobs: list[SweepJob], options: argparse.Namespace, console: Console
) -> int:
    from rlzoo_plus.sweeps import multirun
    from rlzoo_plus.sweeps.again import placed_again
    from rlzoo_plus.sweeps.sweep_view import SweepView, print_summary

    if not jobs:
        console.print(f"{ledger.sweep}: nothing to do", markup=False)
        return 0
    jobs = placed_again(jobs, options.overrides, trust=options.trust)
    launcher = multirun.launcher_for([job.config for job in jobs])
    view = SweepView(lambda: console)
    view.begin(jobs, launcher)
    code = multirun.run_jobs(jobs, launcher, view)
    print_summary(ledger, jobs, console)
    return code


def _status(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import look_at
    from rlzoo_plus.sweeps.summary import as_data, summarise
    from rlzoo_plus.sweeps.sweep_view import print_failed, print_rows, state_of

    if options.watch:
        _watch(ledger, console)
    views = look_at(ledger.read())
    rows, controllers = summarise(views), len(living_controllers(ledger.sweep))
    if options.json:
        print(json.dumps({**as_data(ledger.sweep, views, rows), "controllers": controllers}))
        return 0
    console.print(state_of(views, console.height))
    print_rows(rows, console)
    print_failed(views, console)
    console.print(f"{controllers} controllers at work" if controllers else "no controller at work")
    return 0


def _watch(ledger: Ledger, console: Console) -> None:
    """Show the sweep until no controller works on it; without a terminal, a line a second."""
    from rich.live import Live

    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import look_at
    from rlzoo_plus.sweeps.sweep_view import state_of

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while living_controllers(ledger.sweep):
            views = look_at(ledger.read())
            if console.is_terminal:
                live.update(state_of(views, console.height), refresh=True)
            else:
                console.print(state_of(views, console.height, on_one_line=True))
            time.sleep(_WATCH_S)


def _cancel(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.presence import ask_to_stop

    count = ask_to_stop(ledger.sweep)
    if not count:
        raise ConfigError(f"{ledger.sweep}: no controller is at work there.")
    console.print(f"asked {count} to stop: its jobs write a checkpoint at their next iteration")
    return 0


def _prune(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.artifacts.inside import OutsideError
    from rlzoo_plus.sweeps.again import remove_unfinished
    from rlzoo_plus.sweeps.ledger import REMOVED
    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import JobState, look_at

    if living_controllers(ledger.sweep):
        raise ConfigError(f"{ledger.sweep}: a controller is at work. Stop it first: sweep cancel.")
    views = look_at(ledger.read())
    unfinished = [v for v in views if v.state in (JobState.WAITING, JobState.FAILED)]
    code = 0
    for view in unfinished:
        state = f"{view.state}, {view.progress.steps:,} steps"
        if not options.yes:
            console.print(f"would remove {view.job.key} ({state})", markup=False)
            continue
        try:
            is_removed = remove_unfinished(view.job)
        except OutsideError as error:
            console.print(f"left alone: {view.job.key}: {error}", markup=False, style="red")
            code = 1
            continue
        if is_removed:
            ledger.write(REMOVED, view.job)
            console.print(f"removed {view.job.key} ({state})", markup=False)
    if unfinished and not options.yes:
        console.print("nothing was removed; add --yes")
    elif not unfinished:
        console.print("nothing to remove")
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = CommandParser(
        prog="rlzoo-plus sweep",
        description="Look after a sweep, the jobs of `rlzoo-plus train -m ... sweep=NAME`.",
        epilog="Example: rlzoo-plus sweep status default --watch",
    )
    verbs = parser.add_subparsers(metavar="WHAT", required=True)
    actions = {
        "status": (_status, "show waiting, running, done and failed jobs"),
        "resume": (_resume, "run what is missing; unfinished runs go on bit for bit"),
        "retry-failed": (_retry_failed, "run the failed jobs again, from their last checkpoint"),
        "cancel": (_cancel, "ask a running command to stop cleanly"),
        "prune": (_prune, "remove runs that are not finished from the sweep"),
    }
    for name, (action, text) in actions.items():
        verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        verb.set_defaults(action=action)
        verb.add_argument("sweep", metavar="S", help="its name below outputs/sweeps, or a path")
        if action in (_resume, _retry_failed):
            verb.add_argument("overrides", nargs="*", metavar="infra.KEY=VALUE")
            verb.add_argument(
                "--trust",
                action="store_true",
                help="import the runs' own code, and use the launcher that the ledger names",
            )
        elif action is _status:
            verb.add_argument("--watch", action="store_true", help="until it has ended")
            verb.add_argument("--json", action="store_true", help="print JSON")
        elif action is _prune:
            verb.add_argument("--yes", action="store_true", help="do it, without asking")
    # Overrides may stand before and behind options.
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "overrides") or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides += rest
    return options
