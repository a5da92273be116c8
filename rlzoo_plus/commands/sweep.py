"""`rlzoo-plus sweep`: look at a sweep, let it go on, try failed jobs again, stop it, tidy it."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.schema import InfraConfig

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.sweeps.job import SweepJob
    from rlzoo_plus.sweeps.ledger import Ledger

_WATCH_S = 1.0
# Of a stored `infra`, what can neither run anything nor reach another machine.
_LIMITS = ("workers", "memory_gib", "time_limit_minutes")


def main(arguments: list[str]) -> int:
    """Do what is asked; return the exit code."""
    options = _parse(arguments)
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.sweeps.ledger import open_sweep

    code: int = options.action(open_sweep(options.sweep), options, make_console())
    return code


def _resume(book: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.states import JobState, look_at

    views = look_at(book.read())
    jobs = [view.job for view in views if view.state in (JobState.WAITING, JobState.RUNNING)]
    failed = [view.job for view in views if view.state is JobState.FAILED]
    code = _run(book, jobs, options, console)
    if failed and not code:
        console.print(f"{len(failed)} jobs had failed before, and were left alone")
        return 1
    return code


def _retry_failed(book: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.states import JobState, look_at

    views = look_at(book.read())
    jobs = [view.job for view in views if view.state is JobState.FAILED]
    return _run(book, jobs, options, console)


def _run(book: Ledger, jobs: list[SweepJob], options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.commands.sweeping import launcher_for, print_summary, run_jobs

    if not jobs:
        console.print(f"{book.sweep}: nothing to do", markup=False)
        return 0
    _require_trust(book, jobs, trust=options.trust)
    jobs = [
        replace(
            job, config=job.config.model_copy(update={"infra": _infra(book, job.config, options)})
        )
        for job in jobs
    ]
    launcher = launcher_for([job.config for job in jobs])
    console.print(f"sweep {book.sweep}: {len(jobs)} jobs, {launcher.slots} at once", markup=False)
    code, _ = run_jobs(book, jobs, launcher, console)
    print_summary(book, jobs, console)
    return code


def _status(book: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.commands.sweeping import print_failed, print_rows, print_state
    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import look_at
    from rlzoo_plus.sweeps.summary import as_data, summarise

    if options.watch:
        _watch(book, console)
    views = look_at(book.read())
    rows, controllers = summarise(views), len(living_controllers(book.sweep))
    if options.json:
        print(json.dumps({**as_data(book.sweep, views, rows), "controllers": controllers}))
        return 0
    print_state(views, console)
    print_rows(rows, console)
    print_failed(views, console)
    console.print(f"{controllers} controllers at work" if controllers else "no controller at work")
    return 0


def _watch(book: Ledger, console: Console) -> None:
    """Show the sweep until no controller works on it; without a terminal, a line a second."""
    from rich.live import Live

    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import JobState, look_at
    from rlzoo_plus.sweeps.table import headline, live_table

    with Live(console=console, auto_refresh=False, transient=True) as live:
        while living_controllers(book.sweep):
            views = look_at(book.read())
            running = sum(view.state is JobState.RUNNING for view in views)
            times = [view.time_s for view in views if view.time_s]
            usual = sum(times) / len(times) if times else None
            if console.is_terminal:
                live.update(live_table(views, running, usual, lines=console.height), refresh=True)
            else:
                console.print(headline(views, running, usual))
            time.sleep(_WATCH_S)


def _cancel(book: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.sweeps.presence import ask_to_stop

    count = ask_to_stop(book.sweep)
    if not count:
        raise ConfigError(f"{book.sweep}: no controller is at work there.")
    console.print(f"asked {count} to stop: its jobs write a checkpoint at their next iteration")
    return 0


def _prune(book: Ledger, options: argparse.Namespace, console: Console) -> int:
    from rlzoo_plus.artifacts.inside import OutsideError
    from rlzoo_plus.sweeps import ledger
    from rlzoo_plus.sweeps.presence import living_controllers
    from rlzoo_plus.sweeps.states import JobState, look_at

    if living_controllers(book.sweep):
        raise ConfigError(f"{book.sweep}: a controller is at work. Stop it first: sweep cancel.")
    views = look_at(book.read())
    unfinished = [v for v in views if v.state in (JobState.WAITING, JobState.FAILED)]
    code = 0
    for view in unfinished:
        state = f"{view.state}, {view.progress.steps:,} steps"
        if not options.yes:
            console.print(f"would remove {view.job.key} ({state})", markup=False)
            continue
        try:
            is_removed = _remove(view.job)
        except OutsideError as error:
            console.print(f"left alone: {view.job.key}: {error}", markup=False, style="red")
            code = 1
            continue
        if is_removed:
            book.write(ledger.REMOVED, view.job)
            console.print(f"removed {view.job.key} ({state})", markup=False)
    if unfinished and not options.yes:
        console.print("nothing was removed; add --yes")
    elif not unfinished:
        console.print("nothing to remove")
    return code


def _remove(job: SweepJob) -> bool:
    """Remove a run that is not finished, unless somebody trains in it by now.

    Raises:
        OutsideError: A link leads out of the sweep.
    """
    from rlzoo_plus.artifacts.inside import check_inside

    check_inside(job.sweep, job.path)
    if not job.path.is_dir():
        return True
    with job.run_dir.lock as lock:
        if not lock.acquire() or job.is_finished():
            return False
        shutil.rmtree(job.path)
    return True


def _require_trust(book: Ledger, jobs: list[SweepJob], *, trust: bool) -> None:
    from rlzoo_plus.artifacts.untrusted import printable
    from rlzoo_plus.runs.open import foreign_code_of

    foreign = dict.fromkeys(name for job in jobs for name in foreign_code_of(job.config))
    if foreign and not trust:
        raise ConfigError(
            f"{book.sweep} needs code that is not ours: {printable(', '.join(foreign))}. If you "
            "know where the sweep comes from, add --trust to import it."
        )


def _infra(book: Ledger, config: RunConfig, options: argparse.Namespace) -> InfraConfig:
    """Return where a job runs: what is typed, on top of what of the ledger may count.

    A launcher's own settings run commands and connect elsewhere. Without trust only the number of
    workers and the limits of a stored `infra` count, and a launcher that stays on this machine.

    Raises:
        ConfigError: The launcher is another one and not trusted, or something typed is wrong.
    """
    from rlzoo_plus.config.references import refuse_secrets
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE

    typed = dict(map(_typed, options.overrides))
    refuse_secrets({"infra": typed})
    before = config.infra.model_dump()
    name = typed.get("name", config.infra.name)
    if not options.trust and "name" not in typed and name not in ON_THIS_MACHINE:
        raise ConfigError(
            f"{book.sweep} ran with infra={name}, whose settings can run commands and connect to "
            "other machines. If you know where the sweep comes from, add --trust. Otherwise say "
            "where it is to run: infra.name=local, or the same `train -m` command again."
        )
    if not options.trust or name != config.infra.name:
        before = {key: before[key] for key in _LIMITS}
    try:
        return InfraConfig.model_validate({**before, "name": name, **typed})
    except ValueError as error:
        from rlzoo_plus.artifacts.untrusted import one_line

        raise ConfigError(f"{' '.join(options.overrides)}: infra.{one_line(error)}.") from error


def _typed(override: str) -> tuple[str, Any]:
    import yaml

    from rlzoo_plus.config.suggest import unknown_name

    key, equals, text = override.partition("=")
    name = key.removeprefix("infra.")
    if not equals or not key.startswith("infra."):
        raise ConfigError(f"{override}: must be infra.KEY=VALUE, e.g. infra.memory_gib=4.")
    known = InfraConfig.model_fields
    if name not in known:
        raise ConfigError(unknown_name("key", key, [f"infra.{field}" for field in known]))
    try:
        return name, yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{override}: is no value: {' '.join(str(error).split())}.") from error


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
