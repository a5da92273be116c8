"""`rlzoo-plus doctor`: compose every job, tell all that is wrong at once, and measure the speed."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlzoo_plus.commands.multirun import Multirun, refuse_shared_directory, several_sweeps
from rlzoo_plus.commands.typed import CommandParser
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.diagnosis.command_line import MULTIRUN, is_search, is_sweep_override
from rlzoo_plus.diagnosis.findings import Finding, Level, error, shared, warning
from rlzoo_plus.diagnosis.outcome import JobFindings, Outcome, names_of

if TYPE_CHECKING:
    from rich.console import Console

    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig

USER_ERROR = 2
_PROBE_S = 20.0
_SHORTEST_PROBE_S = 2.0


class _Jobs(Multirun):
    """The jobs of a sweep, collected as training does, and never run."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.found: list[JobFindings] = []
        self._n_returned = 0

    def collect(self, composed: Composed) -> None:
        """Check the configuration of a job as training does, and keep what was said."""
        n_notes = len(self._notes)
        super().collect(composed)
        self._keep(list(composed.overrides), [warning(note) for note in self._notes[n_notes:]])

    def refuse(self, error: Exception, overrides: Sequence[str]) -> None:
        """Keep the reason why a job cannot be composed."""
        super().refuse(error, overrides)
        self._keep(list(overrides), [])

    def run(self) -> list[float | None]:
        """Run nothing."""
        self._end_planning()
        n_jobs, self._n_returned = len(self.found) - self._n_returned, len(self.found)
        return [None] * n_jobs

    def _console_of_planning(self) -> Console:
        from rlzoo_plus.commands.console import make_console

        # What is printed for programs goes to the output.
        return make_console(stderr=True)

    def _keep(self, words: list[str], notes: list[Finding]) -> None:
        mistakes, self._mistakes = self._mistakes, []
        config = self._batch[-1].config if not mistakes else None
        plain = [str(word).lstrip("+").replace("\\:", ":") for word in words]
        self.found.append(JobFindings(plain, config, [*map(error, mistakes), *notes]))
        if not mistakes:
            self.jobs.append(self._batch[-1])


def main(arguments: list[str]) -> int:
    """Look at all jobs; return 0 if they can be trained, else 2."""
    options, overrides = _parse(arguments)
    outcome = _look(overrides)
    if not options.json:
        _print_findings(outcome)
    if outcome.configs and not outcome.is_refused and options.probe:
        _measure(outcome, options.probe, quiet=options.json)
    if options.json:
        from rlzoo_plus.diagnosis.table import as_data

        parts = (outcome.result, outcome.estimate, outcome.overrides)
        print(json.dumps(as_data(outcome.findings, outcome.n_jobs, *parts), indent=2))
    return USER_ERROR if outcome.is_refused else 0


def _look(arguments: list[str]) -> Outcome:
    """Compose all jobs, and look at each of them and at all together."""
    if is_search(arguments):
        return _look_at_study(arguments)
    is_sweep = any(a in MULTIRUN for a in arguments) or any(map(is_sweep_override, arguments))
    try:
        jobs, together = _sweep(arguments) if is_sweep else (_single(arguments), [])
    except ConfigError as mistake:
        jobs, together = [JobFindings([], None, [error(str(mistake))])], []
    _diagnose(jobs)
    configs = [job.config for job in jobs if job.config is not None]
    findings = shared(zip(names_of(jobs), [job.findings for job in jobs], strict=True))
    if configs and not any(one.finding.level is Level.ERROR for one in findings):
        together = [*together, *_machine(configs, is_sweep=is_sweep)]
    everyone = names_of(jobs)
    findings += shared((name, together) for name in everyone)
    findings.sort(key=lambda one: one.finding.level is not Level.ERROR)
    return Outcome(findings, configs, len(jobs), is_sweep)


def _look_at_study(arguments: list[str]) -> Outcome:
    """Draw some trials of a study, and look at each as at the job of a sweep."""
    from rlzoo_plus.commands.doctor_study import draw_trials

    study = draw_trials(arguments)
    _diagnose(study.jobs)
    configs, together = study.configs, study.together
    names = [f"draw {number}" for number in range(len(study.jobs))] or ["the study"]
    findings = shared(zip(names, [job.findings for job in study.jobs], strict=False))
    if configs and not any(f.level is Level.ERROR for job in study.jobs for f in job.findings):
        together = [*together, *_machine(configs, is_sweep=True)]
    findings += shared((name, together) for name in names)
    findings.sort(key=lambda one: one.finding.level is not Level.ERROR)
    return Outcome(findings, configs, len(names), is_sweep=True, draws=len(study.jobs))


def _machine(configs: list[RunConfig], *, is_sweep: bool) -> list[Finding]:
    from rlzoo_plus.diagnosis.machine import check_machine, slots_for
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE

    if configs[0].infra.name not in ON_THIS_MACHINE:
        return []
    slots = slots_for(configs) if is_sweep else 1
    return check_machine(configs, slots, Path(configs[0].run_dir or "outputs"))


def _single(arguments: list[str]) -> list[JobFindings]:
    from rlzoo_plus.config.compose import run_hydra
    from rlzoo_plus.runs.compose import resolve_cfg
    from rlzoo_plus.runs.plan import plan_run

    jobs: list[JobFindings] = []

    def job(composed: Composed) -> None:
        # Hydra would add a line of its own to an error that passes through it.
        try:
            config, notes = resolve_cfg(composed, arguments)
            jobs.append(JobFindings([], plan_run(config).config, [warning(note) for note in notes]))
        except ConfigError as mistake:
            jobs.append(JobFindings([], None, [error(str(mistake))]))

    run_hydra(job, arguments)
    return jobs


def _sweep(arguments: list[str]) -> tuple[list[JobFindings], list[Finding]]:
    """Return the jobs of a sweep, and what is wrong with all of them together."""
    from rlzoo_plus.config.compose import run_hydra

    if not any(argument in MULTIRUN for argument in arguments):
        arguments = ["-m", *arguments]
    refuse_shared_directory(arguments)
    sweep = _Jobs(arguments)
    run_hydra(sweep.collect, arguments, sweep)
    together = [error(text) for text in several_sweeps(sweep.jobs)]
    n_same = len(sweep.jobs) - len({job.key for job in sweep.jobs})
    if n_same:
        together.append(warning(f"{n_same} of the jobs are the same run as another one"))
    return sweep.found, together


def _diagnose(jobs: list[JobFindings]) -> None:
    from rlzoo_plus.diagnosis.diagnose import diagnose, try_environments

    try_environments([job.config for job in jobs if job.config is not None])
    for job in jobs:
        if job.config is not None:
            job.findings += diagnose(job.config)


def _print_findings(outcome: Outcome) -> None:
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.diagnosis.machine import slots_for
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE
    from rlzoo_plus.diagnosis.table import counts, finding_text

    console = make_console()
    n_jobs = outcome.n_jobs
    for one in outcome.findings:
        console.print(finding_text(one, n_jobs))
    what = f"{n_jobs} job{'s' if n_jobs != 1 else ''}" if outcome.is_sweep else "1 run"
    if outcome.draws is not None:
        what = f"the study, {outcome.draws} draws looked at"
    configs = outcome.configs
    if outcome.is_sweep and configs and configs[0].infra.name in ON_THIS_MACHINE:
        what += f", {slots_for(configs)} at once"
    console.print(f"{what}: {counts(outcome.findings)}", markup=False)


def _measure(outcome: Outcome, seconds: float, *, quiet: bool) -> None:
    """Train a little, and say how fast that was and what would be fastest."""
    from rlzoo_plus.commands.console import make_console
    from rlzoo_plus.commands.sweeping import PRELOAD
    from rlzoo_plus.diagnosis.building import agent_facts
    from rlzoo_plus.diagnosis.estimate import estimate, overrides_for
    from rlzoo_plus.diagnosis.probe import Probe
    from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE
    from rlzoo_plus.infra.local import LocalLauncher
    from rlzoo_plus.infra.usage import cores

    configs, console = outcome.configs, make_console()
    if configs[0].infra.name not in ON_THIS_MACHINE:
        if not quiet:
            console.print(f"no probe: infra={configs[0].infra.name} trains on other machines")
        return
    if not quiet:
        console.print(f"\nprobe: training for about {seconds:g} s, on {cores()} cores ...")
    launcher = LocalLauncher(cores(), PRELOAD)
    with tempfile.TemporaryDirectory(prefix="rlzoo-doctor-", ignore_cleanup_errors=True) as folder:
        probe = Probe(launcher, Path(folder), seconds, is_sweep=outcome.is_sweep)
        outcome.result = probe.run(configs)
    longest = {str(config.env.name): agent_facts(config).episode_steps for config in configs}
    outcome.estimate = estimate(outcome.result, configs, longest)
    if outcome.result.best is not None:
        outcome.overrides = overrides_for(outcome.result.best, is_sweep=outcome.is_sweep)
    if not quiet:
        _print_probe(outcome, console)


def _print_probe(outcome: Outcome, console: Any) -> None:
    from rlzoo_plus.diagnosis.table import estimate_text, probe_table, setting_text

    assert outcome.result is not None
    console.print(probe_table(outcome.result))
    if outcome.result.left_out:
        names = ", ".join(kind.name for kind in outcome.result.left_out)
        console.print(f"not measured: {names}", markup=False)
    if outcome.result.not_tried:
        names = "; ".join(map(setting_text, outcome.result.not_tried))
        console.print(f"not tried, for lack of time: {names}", markup=False)
    if outcome.estimate is not None:
        console.print(estimate_text(outcome.estimate, outcome.n_jobs), markup=False)
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
