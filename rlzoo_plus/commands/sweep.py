"""`rlzoo-plus sweep`: show, resume or stop a sweep, retry failed jobs, read logs, tidy it."""

from __future__ import annotations

import argparse
import gc
import json
import time

from rich.console import Console

from rlzoo_plus.artifacts.inside import OutsideError
from rlzoo_plus.commands.arguments import positive
from rlzoo_plus.commands.sweep_in_store import act
from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps import multirun
from rlzoo_plus.sweeps.ledger import REMOVED, Ledger, open_sweep
from rlzoo_plus.sweeps.presence import ask_to_stop, living_controllers
from rlzoo_plus.sweeps.states import JobState, log_tail, look_at, print_logs
from rlzoo_plus.sweeps.summary import as_data, summarise
from rlzoo_plus.sweeps.sweep_job import placed_again, remove_unfinished
from rlzoo_plus.sweeps.sweep_view import (
    SweepView,
    drawn_in_place,
    print_failed,
    print_rows,
    print_summary,
    state_of,
)
from rlzoo_plus.workers.store_sweep import find_store_sweep

# What is different for a sweep in a store.
_IN_A_STORE = {
    "logs": " Of a sweep in a store: as they were last sent, five minutes ago at most.",
    "resume": " In a store: let workers take the cancelled runs again; of a sweep in AWS also "
    "start machines for what is not done, as before but for what you say here: infra.spot=false "
    "infra.max_usd=20.",
    "retry-failed": " In a store: let workers take the failed runs again; of a sweep in AWS also "
    "start machines for them.",
    "cancel": " In a store: from any machine; no worker takes a cancelled run until `resume`. Jobs "
    "in AWS that have not begun are cancelled.",
    "prune": " In a store: from the list of its jobs; a lifecycle rule removes their objects.",
}


def main(arguments: list[str]) -> int:
    """Run a sub-command; return the exit code."""
    options = _parse(arguments)
    if options.verb != "status" or options.watch:
        return _act(options)
    # Of thousands of jobs that are made here, all stay: there is no garbage to look for.
    gc.disable()
    try:
        return _act(options)
    finally:
        gc.enable()


def _act(options: argparse.Namespace) -> int:
    found = find_store_sweep(options.sweep)
    if found is not None:
        return act(found, options, make_console())
    return int(options.action(open_sweep(options.sweep), options, make_console()))


def _run(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    """Run the unfinished jobs, or those that have failed."""
    views = look_at(ledger.read())
    failed = [view.job for view in views if view.state is JobState.FAILED]
    jobs = failed
    if options.verb == "resume":
        unfinished = (JobState.WAITING, JobState.RUNNING)
        jobs = [view.job for view in views if view.state in unfinished]
    code = 0
    if jobs:
        jobs = placed_again(jobs, options.overrides, trust=options.trust)
        launcher = multirun.launcher_for([job.config for job in jobs])
        view = SweepView(lambda: console)
        view.begin(jobs, launcher)
        code = multirun.run_jobs(jobs, launcher, view)
        if not multirun.is_left(launcher, code):
            print_summary(ledger, jobs, console)
    else:
        console.print(f"{ledger.sweep}: nothing to do", markup=False)
    if failed and options.verb == "resume" and not code:
        console.print(f"{len(failed)} jobs had failed before, and were left alone")
        return 1
    return code


def _status(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
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
    with drawn_in_place(console) as live:
        while living_controllers(ledger.sweep):
            views = look_at(ledger.read())
            if console.is_terminal:
                live.update(state_of(views, console.height), refresh=True)
            else:
                console.print(state_of(views, console.height, on_one_line=True))
            time.sleep(1.0)


def _logs(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    views = look_at(ledger.read())
    print_logs(views, options.part, lambda job: log_tail(job, options.lines), console)
    return 0


def _cancel(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    count = ask_to_stop(ledger.sweep)
    if not count:
        raise ConfigError(f"{ledger.sweep}: no controller is at work there.")
    console.print(f"asked {count} to stop: its jobs write a checkpoint at their next iteration")
    return 0


def _prune(ledger: Ledger, options: argparse.Namespace, console: Console) -> int:
    if living_controllers(ledger.sweep):
        raise ConfigError(f"{ledger.sweep}: a controller is at work. Stop it first: sweep cancel.")
    views = look_at(ledger.read())
    unfinished = [v for v in views if v.state in (JobState.WAITING, JobState.FAILED)]
    code = 0
    for view in unfinished:
        shown = f"{view.job.key} ({view.state}, {view.progress.steps:,} steps)"
        if not options.yes:
            console.print(f"would remove {shown}", markup=False)
            continue
        try:
            if remove_unfinished(view.job):
                ledger.write(REMOVED, view.job)
                console.print(f"removed {shown}", markup=False)
        except OutsideError as error:
            console.print(f"left alone: {view.job.key}: {error}", markup=False, style="red")
            code = 1
    if unfinished and not options.yes:
        console.print("nothing was removed; add --yes")
    elif not unfinished:
        console.print("nothing to remove")
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = command_parser(
        "sweep",
        "Manage a sweep, the jobs of `rlzoo-plus train -m ... sweep=NAME`, here or in a store.",
        "status default --watch",
    )
    verbs = parser.add_subparsers(metavar="COMMAND", required=True, dest="verb")
    actions = {
        "status": (_status, "show waiting, running, done and failed jobs"),
        "logs": (_logs, "show the last lines of the logs of running and failed jobs"),
        "resume": (_run, "run the unfinished jobs; they resume bit for bit"),
        "retry-failed": (_run, "run the failed jobs again, from their last checkpoint"),
        "cancel": (_cancel, "stop the running jobs cleanly, with a checkpoint"),
        "prune": (_prune, "remove unfinished runs from the sweep"),
    }
    for name, (action, text) in actions.items():
        told = f"{text[0].upper()}{text[1:]}.{_IN_A_STORE.get(name, '')}"
        verb = verbs.add_parser(name, help=text, description=told)
        verb.set_defaults(action=action)
        named = "name below outputs/sweeps, a path, or STORE/SWEEP such as s3://bucket/lab/first"
        verb.add_argument("sweep", metavar="SWEEP", help=named)
        if action is _run:
            where = "where and how many at once, e.g. infra.workers=4"
            verb.add_argument("overrides", nargs="*", metavar="infra.KEY=VALUE", help=where)
            trust = "import the runs' own code, and use the launcher that the ledger names"
            verb.add_argument("--trust", action="store_true", help=trust)
        elif action is _status:
            verb.add_argument("--watch", action="store_true", help="update until the sweep ends")
            verb.add_argument("--json", action="store_true", help="print JSON, for programs")
        elif action is _logs:
            part = "a part of the path of each, e.g. ppo (default: running and failed jobs)"
            verb.add_argument("part", nargs="?", metavar="PART", help=part)
            count = "of each (default: %(default)s)"
            verb.add_argument("--lines", type=positive(int), default=20, metavar="N", help=count)
        elif action is _prune:
            yes = "remove them; without it they are only listed"
            verb.add_argument("--yes", action="store_true", help=yes)
    # Overrides may come before and after options.
    options: argparse.Namespace
    options, rest = parser.parse_known_args(arguments)
    if rest and (not hasattr(options, "overrides") or any(word.startswith("-") for word in rest)):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        options.overrides += rest
    return options
