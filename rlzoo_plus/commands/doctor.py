"""`rlzoo-plus doctor`: check every job of a command at once, and measure the training speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rlzoo_plus.commands.typed import command_parser, make_console
from rlzoo_plus.config.catalog import IN_CLOUD
from rlzoo_plus.errors import USER_ERROR, ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.doctor.check_jobs import Outcome
    from rlzoo_plus.tuning.study_plan import StudyPlan

_SHORTEST_PROBE_S = 2.0


def main(arguments: list[str]) -> int:
    """Check all jobs; return 0 if they can be trained, else 2."""
    parser = command_parser(
        "doctor",
        "Check every job of a train command without running it, show all errors and warnings at "
        "once, and train for some seconds in a temporary directory to measure the speed. The "
        "overrides are those of train; several values for one of them imply -m. Exit code: 0, or 2 "
        "if train would refuse a job.",
        "algo=ppo,sac 'seed=range(0,5)'",
        usage="rlzoo-plus doctor [-m] [--no-probe | --probe SECONDS] [--json] [KEY=VALUE ...]",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--probe", type=float, default=20.0, metavar="SECONDS", help="time to measure (default 20)")
    add("--no-probe", dest="probe", action="store_const", const=0.0, help="do not measure")
    add("--json", action="store_true", help="print JSON, for programs")
    options, overrides = parser.parse_known_args(arguments)
    if options.probe and options.probe < _SHORTEST_PROBE_S:
        raise ConfigError(
            f"--probe {options.probe:g}: needs at least {_SHORTEST_PROBE_S:g} seconds. "
            "Leave it out with --no-probe."
        )
    from rlzoo_plus.doctor.check_jobs import check_jobs
    from rlzoo_plus.sweeps.sweep_view import SweepView

    # Progress goes to stderr: the output may be JSON.
    outcome = check_jobs(overrides, SweepView(lambda: make_console(stderr=True)), _plan_study)
    if not options.json:
        _print_findings(outcome)
    if outcome.configs and not outcome.is_refused:
        if outcome.configs[0].infra.name in IN_CLOUD:
            _plan(outcome, options.probe, quiet=options.json)
        elif options.probe:
            _measure(outcome, options.probe, quiet=options.json)
    if options.json:
        print(json.dumps(outcome.as_data(), indent=2))
    return USER_ERROR if outcome.is_refused else 0


def _plan_study(
    arguments: list[str], compose: Callable[[Sequence[str]], Composed]
) -> tuple[StudyPlan, list[str], list[str]]:
    from rlzoo_plus.tuning.study_plan import make_plan, study_mistakes

    plan, notes = make_plan(arguments, compose)
    return plan, notes, study_mistakes(plan)


def _print_findings(outcome: Outcome) -> None:
    from rlzoo_plus.doctor.advice import slots_for
    from rlzoo_plus.doctor.check_jobs import finding_text
    from rlzoo_plus.sweeps.refusals import ON_THIS_MACHINE

    console, n_jobs, configs = make_console(), outcome.n_jobs, outcome.configs
    for finding, jobs in outcome.findings.items():
        console.print(finding_text(finding, jobs, n_jobs))
    what = f"{n_jobs} job{'s' if n_jobs != 1 else ''}" if outcome.is_sweep else "1 run"
    if outcome.draws is not None:
        what = f"the study, checked with {outcome.draws} draws"
    if outcome.is_sweep and configs and configs[0].infra.name in ON_THIS_MACHINE:
        what += f", {slots_for(configs)} at once"
    console.print(f"{what}: {outcome.counts()}", markup=False)
    if outcome.work:
        console.print(f"{outcome.work}; pruning ends some trials early", markup=False)


def _plan(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train for some seconds, and print what the jobs cost in AWS and what Spot machines need."""
    from rlzoo_plus.doctor.check_jobs import finding_text
    from rlzoo_plus.doctor.measuring import plan_in_cloud, probe_table
    from rlzoo_plus.sweeps.launchers.usage import cores

    console = make_console()
    if seconds and not quiet:
        console.print(f"\nprobe: training here for about {seconds:g} s, on {cores()} cores ...")
    warnings = plan_in_cloud(outcome, seconds)
    if quiet:
        return
    assert outcome.result is not None
    if outcome.result.measurements:
        console.print(probe_table(outcome.result))
    for finding, jobs in warnings.items():
        console.print(finding_text(finding, jobs, outcome.n_jobs))
    for line in outcome.plan:
        console.print(line, markup=False)


def _measure(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train for some seconds, and print how fast it was and which settings are the fastest."""
    from rlzoo_plus.doctor.measuring import measure, probe_table
    from rlzoo_plus.sweeps.launchers.usage import cores
    from rlzoo_plus.sweeps.refusals import ON_THIS_MACHINE

    console, infra = make_console(), outcome.configs[0].infra
    is_here = infra.name in ON_THIS_MACHINE
    if not quiet and is_here:
        console.print(f"\nprobe: training for about {seconds:g} s, on {cores()} cores ...")
    elif not quiet:
        console.print(f"no probe: infra={infra.name} trains on other machines")
    if is_here:
        measure(outcome, seconds)
    if quiet or not is_here:
        return
    assert outcome.result is not None
    console.print(probe_table(outcome.result))
    lines = {
        "not measured": ", ".join(kind.name for kind in outcome.result.left_out),
        "not tried, for lack of time": "; ".join(map(str, outcome.result.not_tried)),
    }
    for label, names in lines.items():
        if names:
            console.print(f"{label}: {names}", markup=False)
    if outcome.estimate is not None:
        is_study = outcome.draws is not None
        console.print(outcome.estimate.text(outcome.n_jobs, is_study=is_study), markup=False)
    if outcome.overrides:
        console.print(f"fastest with: {' '.join(outcome.overrides)}", markup=False)
