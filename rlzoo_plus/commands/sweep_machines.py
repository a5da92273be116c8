"""The machines in AWS that a sweep was launched on: shown, cancelled, and started again."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from rlzoo_plus.artifacts.untrusted import printable
from rlzoo_plus.config.catalog import IN_CLOUD
from rlzoo_plus.config.references import refuse_secrets
from rlzoo_plus.config.resolve import infra_of
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import StoreError
from rlzoo_plus.store.submissions import split_sweep_url
from rlzoo_plus.sweeps.launchers.launcher import make_launcher
from rlzoo_plus.sweeps.states import JobState
from rlzoo_plus.sweeps.sweep_job import busy_cores, parse_infra
from rlzoo_plus.workers.store_sweep import Changed, StoreSweep, StoreView

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.cloud.cloud_launcher import CloudLauncher
    from rlzoo_plus.store.launches import Launch


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


def newest_launch(sweep: StoreSweep) -> Launch | None:
    """Return what was launched last, None if nothing was."""
    return next(_newest(sweep), None)


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
