"""The sub-commands of `rlzoo-plus sweep` for a sweep in a store, and its machines in AWS."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from rlzoo_plus.analysis.run_list import counted
from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import IN_CLOUD
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.resolve import infra_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import StoreError
from rlzoo_plus.store.lease import CANCELLED, FAILED, RUNNING
from rlzoo_plus.store.submissions import split_sweep_url
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.states import JobState, print_logs
from rlzoo_plus.sweeps.summary import summarise
from rlzoo_plus.sweeps.sweep_job import SweepJob, busy_cores, parse_infra
from rlzoo_plus.sweeps.sweep_view import drawn_in_place, print_failed, print_rows, state_of
from rlzoo_plus.workers.costs import lines_of
from rlzoo_plus.workers.store_sweep import Changed, StoreSweep, StoreView, is_over, n_workers

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.cloud.cloud_launcher import CloudLauncher
    from rlzoo_plus.store.launches import Launch

_WATCH_S, _AFTER_ERROR_S = 5.0, 30.0


def act(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    """Run a sub-command; return the exit code."""
    return _ACTIONS[options.verb](sweep, options, console)


def _status(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    if options.watch:
        _watch(sweep, console)
    views = sweep.views()
    rows = summarise([*views])
    machines = about_machines(sweep, views)
    if options.json:
        print(json.dumps({**sweep.data(views, rows), "machines": machines}))
        return 0
    console.print(f"sweep {sweep.url}", markup=False)
    console.print(state_of([*views], console.height))
    print_rows(rows, console)
    print_failed([*views], console)
    n_cancelled = sum(view.is_cancelled for view in views)
    if n_cancelled:
        console.print(f"{n_cancelled:,} of those that wait are cancelled, until `sweep resume`")
    count = n_workers(views)
    if count:
        console.print(f"{counted(count, 'worker')} at work")
    elif is_over(views) or machines:
        console.print("no worker at work")
    else:
        console.print(f"no worker at work; start some: {_workers(sweep)}", markup=False)
    for line in [*machines, *lines_of({view.job.key: view.costs for view in views})]:
        console.print(line, markup=False)
    return 0


def _watch(sweep: StoreSweep, console: Console) -> None:
    """Show the sweep until no job runs or waits for a worker; else a line whenever it changed."""
    before = None
    with drawn_in_place(console) as live:
        while True:
            try:
                views = sweep.views()
            except StoreError as error:
                console.print(f"{error}; trying again", markup=False, style="yellow")
                time.sleep(_AFTER_ERROR_S)
                continue
            if is_over(views):
                return
            if console.is_terminal:
                live.update(state_of([*views], console.height), refresh=True)
            elif (text := state_of([*views], console.height, on_one_line=True)) != before:
                console.print(before := text)
            time.sleep(_WATCH_S)


def _logs(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    def tail(job: SweepJob) -> list[str] | None:
        try:
            return sweep.log_tail(job, options.lines)
        except StoreError as error:
            return [str(error)]

    print_logs(sweep.views(), options.part, tail, console)
    return 0


def _cancel(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    ended = (JobState.DONE, JobState.FAILED)
    views = [v for v in sweep.views() if v.state not in ended and not v.is_cancelled]
    if not views:
        console.print(f"{sweep.url}: no run to cancel", markup=False)
        return 0
    changed = sweep.cancel(views, "sweep cancel")
    asked, cancelled = changed.answers.count(RUNNING), changed.answers.count(CANCELLED)
    if cancelled:
        console.print(f"cancelled {counted(cancelled, 'run')} that no worker trains")
    if asked:
        console.print(
            f"asked the workers of {counted(asked, 'run')} to stop: within half a minute or so "
            "they write a checkpoint and send it"
        )
    for line in stop_machines(sweep):
        console.print(line, markup=False)
    return _say_error(changed.error, console)


def _resume(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    """Let workers take cancelled runs again, or with `retry-failed` the failed ones."""
    launch = next(_newest(sweep), None)
    if launch is None and (options.overrides or options.trust):
        given = " ".join([*options.overrides, *(["--trust"] if options.trust else [])])
        raise ConfigError(
            f"{printable(given)}: the runs of {sweep.url} are trained by workers; where and how "
            f"many is said to them: {_workers(sweep)} --slots N. Leave it out."
        )
    views = sweep.views()
    failed = [view for view in views if view.state is JobState.FAILED]
    retries = options.verb == "retry-failed"
    chosen = failed if retries else [view for view in views if view.is_cancelled]
    states = (FAILED,) if retries else (CANCELLED,)
    if launch is None:
        changed = sweep.reopen(chosen, states)
    else:
        restarted = restart(sweep, launch, views, chosen, states, options, console)
        if restarted is None:
            return 0
        changed = restarted
    reopened = sum(changed.answers)
    waiting = [v for v in views if v.state is JobState.WAITING and not v.is_cancelled]
    if reopened:
        which = "failed" if retries else "cancelled"
        console.print(f"workers may take {counted(reopened, f'{which} run')} again")
    if reopened or waiting:
        console.print(f"{counted(reopened + len(waiting), 'run')} wait for a worker")
        if launch is None:
            console.print(f"next: {_workers(sweep)}", markup=False)
    else:
        console.print(f"{sweep.url}: nothing to do", markup=False)
    if failed and not retries:
        console.print(f"{counted(len(failed), 'job')} had failed before, left alone")
        return 1
    return _say_error(changed.error, console)


def _prune(sweep: StoreSweep, options: argparse.Namespace, console: Console) -> int:
    views = [v for v in sweep.views() if v.state in (JobState.WAITING, JobState.FAILED)]
    if options.yes and views:
        sweep.remove(views)
    for view in views:
        did = "removed" if options.yes else "would remove"
        shown = f"{view.job.key} ({view.state}, {view.progress.steps:,} steps)"
        console.print(f"{did} {shown}", markup=False)
    if not views:
        console.print("nothing to remove")
    elif options.yes:
        console.print("their objects stay in the store, until a lifecycle rule removes them")
    else:
        console.print("nothing was removed; add --yes")
    return 0


def _workers(sweep: StoreSweep) -> str:
    return f"rlzoo-plus worker {printable(sweep.url)}"


def _say_error(error: StoreError | None, console: Console) -> int:
    if error is None:
        return 0
    console.print(f"others could not be changed: {error}", markup=False, style="red")
    console.print("the same command again goes on")
    return 1


_ACTIONS: dict[str, Callable[[StoreSweep, argparse.Namespace, Console], int]] = {
    "status": _status,
    "logs": _logs,
    "cancel": _cancel,
    "resume": _resume,
    "retry-failed": _resume,
    "prune": _prune,
}


def about_machines(sweep: StoreSweep, views: Collection[StoreView]) -> list[str]:
    """Return lines about the machines of a sweep and what helps them, none if it has none.

    AWS is asked for a sweep that was launched there only, and an error of it is a line.
    """
    unbegun = [v.job.key for v in views if v.state is JobState.WAITING and not v.is_cancelled]
    is_over = all(v.state in (JobState.DONE, JobState.FAILED) or v.is_cancelled for v in views)
    try:
        launches = [] if is_over else list(_newest(sweep))
        return [
            line
            for launch in launches
            for line in _launcher_of(sweep, launch).explain(unbegun, printable(sweep.url))
        ]
    except (ConfigError, StoreError) as error:
        return [f"nothing is known of its machines: {error}"]


def stop_machines(sweep: StoreSweep) -> list[str]:
    """Cancel what has not begun of a sweep's machines; return lines that say so."""
    try:
        launches = list(_newest(sweep))
        return [line for each in launches for line in _launcher_of(sweep, each).stop_machines()]
    except (ConfigError, StoreError) as error:
        return [f"what has not begun in AWS could not be cancelled: {error}"]


def restart(
    sweep: StoreSweep,
    launch: Launch,
    views: Collection[StoreView],
    chosen: Sequence[StoreView],
    states: Collection[str],
    options: argparse.Namespace,
    console: Console,
) -> Changed | None:
    """Start machines for the runs that are not done, with the settings of a launch.

    `chosen` are those of the runs that have ended in one of some states of a lease, and are to go
    on.

    Returns:
        What became of the `chosen` ones, None if only a plan was printed.

    Raises:
        ConfigError: The machines could not be started; nothing was changed.
    """
    keys = {view.job.key for view in chosen}
    waiting = [v for v in views if v.state is JobState.WAITING and not v.is_cancelled]
    todo = [view for view in views if view in waiting or view.job.key in keys]
    running = [view for view in views if view.state is JobState.RUNNING]
    if not todo:
        return Changed([], None)
    launcher = _launcher_of(sweep, launch, options.overrides, todo)
    configs = {view.job.key: view.job.config for view in [*todo, *running]}
    is_plan = launcher.settings.dry_run
    plan = launcher.plan(configs, launcher.spent()) if is_plan else launcher.prepare(configs)
    needs_trust = launcher.trust or bool(launch.infra.get("code"))
    if needs_trust and not options.trust and not plan:
        raise ConfigError(
            f"{sweep.url} needs code that is not ours. If you know who writes to this store, add "
            "--trust: its workers import it then."
        )
    for line in plan:
        console.print(line, markup=False)
    if plan:
        return None
    launcher.trust = needs_trust
    changed_keys = (view.job.key for view in [*todo, *running])
    sweep.set_budgets({key: launcher.more_of(key)["max_usd"] for key in changed_keys})
    changed = sweep.reopen(chosen, states)
    for line in launcher.start_machines([view.job.key for view in todo]):
        console.print(line, markup=False)
    return changed


def _newest(sweep: StoreSweep) -> Iterator[Launch]:
    """Yield the newest launch of each kind of machines, the newest of all first."""
    launches, kinds = sweep.launches, set[Any]()
    for name in reversed(launches.names()):
        launch = launches.read(name)
        kind = launch.infra.get("name")
        if kind not in kinds:
            kinds.add(kind)
            yield launch
        if len(kinds) == len(IN_CLOUD):
            return


def _launcher_of(
    sweep: StoreSweep,
    launch: Launch,
    overrides: Sequence[str] = (),
    views: Sequence[StoreView] = (),
) -> CloudLauncher:
    """Return the launcher of a launch, whose settings are those of somebody who can write there."""
    given = parse_infra(overrides)
    refuse_secrets({"infra": given})
    # What machines start from is never said by the store.
    stored = {key: value for key, value in launch.infra.items() if key != "ami"}
    # Code was sent when the runs were submitted, perhaps from another machine.
    values = {**stored, "wait": False, "dry_run": False, "code": [], **given}
    if values.get("name") not in IN_CLOUD:
        raise ConfigError(
            f"{sweep.url} was launched with infra={printable(repr(values.get('name')))}, which "
            "starts no machines in AWS."
        )
    try:
        infra = infra_of(values)
    except ConfigError as error:
        reason = "; ".join(str(error).splitlines())
        raise ConfigError(f"launch {launch.name} of {sweep.url}: {reason}") from error
    store, name = split_sweep_url(sweep.url)
    threads = max((busy_cores(view.job.config) for view in views), default=1)
    launcher = cast("CloudLauncher", make_launcher(infra, threads, (), store=store, sweep=name))
    if not launcher.settings.dry_run:
        launcher.check_store()
    return launcher
