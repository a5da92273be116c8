"""`rlzoo-plus doctor`: compose every job, tell all that is wrong at once, and measure the speed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.errors import USER_ERROR, ConfigError

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.diagnosis.diagnose import Outcome
    from rlzoo_plus.tuning.study_plan import StudyPlan

_PROBE_S = 20.0
_SHORTEST_PROBE_S = 2.0


def main(arguments: list[str]) -> int:
    """Look at all jobs; return 0 if they can be trained, else 2."""
    options, overrides = _parse(arguments)
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.diagnosis.diagnose import look
    from rlzoo_plus.sweeps.sweep_view import SweepView

    # What is printed for programs goes to the output.
    outcome = look(overrides, SweepView(lambda: make_console(stderr=True)), _plan_study)
    if not options.json:
        _print_findings(outcome)
    if outcome.configs and not outcome.is_refused and options.probe:
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
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.diagnosis.advice import slots_for
    from rlzoo_plus.diagnosis.diagnose import finding_text
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE

    console = make_console()
    n_jobs = outcome.n_jobs
    for finding, jobs in outcome.findings.items():
        console.print(finding_text(finding, jobs, n_jobs))
    what = f"{n_jobs} job{'s' if n_jobs != 1 else ''}" if outcome.is_sweep else "1 run"
    if outcome.draws is not None:
        what = f"the study, {outcome.draws} draws looked at"
    configs = outcome.configs
    if outcome.is_sweep and configs and configs[0].infra.name in ON_THIS_MACHINE:
        what += f", {slots_for(configs)} at once"
    console.print(f"{what}: {outcome.counts()}", markup=False)


def _measure(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train a little, and say how fast that was and what would be fastest."""
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.diagnosis.estimate import measure
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE
    from rlzoo_plus.infra.usage import cores

    console, infra = make_console(), outcome.configs[0].infra
    if infra.name not in ON_THIS_MACHINE:
        if not quiet:
            console.print(f"no probe: infra={infra.name} trains on other machines")
        return
    if not quiet:
        console.print(f"\nprobe: training for about {seconds:g} s, on {cores()} cores ...")
    measure(outcome, seconds)
    if not quiet:
        _print_probe(outcome, console)


def _print_probe(outcome: Outcome, console: Any) -> None:
    from rlzoo_plus.diagnosis.estimate import probe_table

    assert outcome.result is not None
    console.print(probe_table(outcome.result))
    if outcome.result.left_out:
        names = ", ".join(kind.name for kind in outcome.result.left_out)
        console.print(f"not measured: {names}", markup=False)
    if outcome.result.not_tried:
        names = "; ".join(map(str, outcome.result.not_tried))
        console.print(f"not tried, for lack of time: {names}", markup=False)
    if outcome.estimate is not None:
        console.print(outcome.estimate.text(outcome.n_jobs), markup=False)
    if outcome.overrides:
        console.print(f"fastest with: {' '.join(outcome.overrides)}", markup=False)


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    parser = CommandParser(
        prog="rlzoo-plus doctor",
        usage="rlzoo-plus doctor [-m] [--no-probe | --probe SECONDS] [--json] [KEY=VALUE ...]",
        description="Compose every job of a train command without running it, tell all that is "
        "wrong or doubtful at once, and train a little in a temporary directory to see how fast "
        "it is. Exit code: 0, or 2 if train would refuse a job.",
        epilog="Example: rlzoo-plus doctor algo=ppo,sac 'seed=range(0,5)'. The overrides are those "
        "of train; -m is understood where one of them stands for several values.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--probe",
        type=float,
        default=_PROBE_S,
        metavar="SECONDS",
        help=f"time for measuring (default: {_PROBE_S:g})",
    )
    parser.add_argument(
        "--no-probe", dest="probe", action="store_const", const=0.0, help="measure nothing"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    options, overrides = parser.parse_known_args(arguments)
    if options.probe and options.probe < _SHORTEST_PROBE_S:
        raise ConfigError(
            f"--probe {options.probe:g}: needs at least {_SHORTEST_PROBE_S:g} seconds. "
            "Leave it out with --no-probe."
        )
    return options, overrides
