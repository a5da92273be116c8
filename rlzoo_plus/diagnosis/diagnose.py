"""Looks at all that a command line asks for, as training would, and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.diagnosis.findings import (
    Finding,
    JobFindings,
    Level,
    Outcome,
    error,
    names_of,
    shared,
    warning,
)
from rlzoo_plus.diagnosis.refusals import ON_THIS_MACHINE, Refusals, infra_refusals
from rlzoo_plus.diagnosis.rules import advice
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.sweeps.multirun import (
    MULTIRUN,
    Listener,
    Multirun,
    is_search,
    several_sweeps,
)

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.tuning.study_plan import StudyPlan

    # From what composes overrides to the plan of a study, what the user should know, and what is
    # wrong with it.
    PlanStudy = Callable[
        [list[str], Callable[[Sequence[str]], Composed]], tuple[StudyPlan, list[str], list[str]]
    ]

DRAWS = 50
# Making an environment takes up to a second.
_refusals = Refusals()


def look(arguments: list[str], listener: Listener, plan_study: PlanStudy) -> Outcome:
    """Compose all jobs of a command line, and look at each of them and at all together.

    Args:
        arguments: What `train` would be given; `-m` may be missing.
        listener: Hears how far the planning is.
        plan_study: Plans the study that `hpo=...` asks for.
    """
    draws = None
    together: list[Finding] = []
    is_sweep = is_search(arguments) or any(
        argument in MULTIRUN or _is_sweep_override(argument) for argument in arguments
    )
    if is_sweep and not any(argument in MULTIRUN for argument in arguments):
        arguments = ["-m", *arguments]
    if is_search(arguments):
        study = _Draws(arguments, plan_study)
        try:
            study.execute()
        except ConfigError as mistake:
            study.together.append(error(str(mistake)))
        jobs, together, configs, draws = (
            study.found,
            study.together,
            study.configs,
            len(study.found),
        )
        names = [f"draw {number}" for number in range(len(jobs))] or ["the study"]
        _diagnose_all(jobs)
    else:
        try:
            jobs, together = _sweep(arguments, listener) if is_sweep else (_single(arguments), [])
        except ConfigError as mistake:
            jobs = [JobFindings([], None, [error(str(mistake))])]
        _diagnose_all(jobs)
        names = names_of(jobs)
        configs = [job.config for job in jobs if job.config is not None]
    findings = shared(zip(names, [job.findings for job in jobs], strict=False))
    if configs and not any(one.finding.level is Level.ERROR for one in findings):
        together = [*together, *_machine(configs, is_sweep=is_sweep)]
    findings += shared((name, together) for name in names)
    findings.sort(key=lambda one: one.finding.level is not Level.ERROR)
    return Outcome(findings, configs, len(names), is_sweep, draws=draws)


def diagnose(config: RunConfig) -> list[Finding]:
    """Return what is wrong with a configuration, or doubtful about it; nothing is written.

    The environment is made once for all configurations that share it. The agent is built, on the
    CPU and with a small replay buffer, for each that differs in what it is built from: this finds
    what only the constructors of the library refuse.

    Args:
        config: The run, as `resolve` returns it.
    """
    from rlzoo_plus.config.resolve import resolve

    try:
        found = [warning(text) for text in resolve(config.model_dump()).warnings]
    except ConfigError as mistake:
        return [error(str(mistake))]
    refused = [*infra_refusals(config), *_refusals.of(config)]
    found += [error(text) for text in refused]
    if refused:
        return found
    # Importing torch takes a second.
    from rlzoo_plus.diagnosis.building import agent_facts

    try:
        return found + [warning(text) for text in advice(config, agent_facts(config))]
    except ConfigError as mistake:
        return [*found, error(str(mistake))]


def _diagnose_all(jobs: list[JobFindings]) -> None:
    # All environments at once, which is faster than one by one.
    _refusals.try_environments([job.config for job in jobs if job.config is not None])
    for job in jobs:
        if job.config is not None:
            job.findings += diagnose(job.config)


def _is_sweep_override(argument: str) -> bool:
    """Tell whether an argument stands for several values, as `seed=1,2` and `range` do."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    if argument.startswith("-") or "=" not in argument:
        return False
    try:
        (override,) = OverridesParser.create().parse_overrides([argument])
    except HydraException:
        # It is told when the jobs are composed.
        return False
    return bool(override.is_sweep_override())


def _machine(configs: list[RunConfig], *, is_sweep: bool) -> list[Finding]:
    from rlzoo_plus.diagnosis.machine import check_machine, slots_for

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


def _sweep(arguments: list[str], listener: Listener) -> tuple[list[JobFindings], list[Finding]]:
    """Return the jobs of a sweep, and what is wrong with all of them together."""
    sweep = _Jobs(arguments, listener)
    sweep.execute()
    together = [error(text) for text in several_sweeps(sweep.jobs)]
    n_same = len(sweep.jobs) - len({job.key for job in sweep.jobs})
    if n_same:
        together.append(warning(f"{n_same} of the jobs are the same run as another one"))
    return sweep.found, together


class _Jobs(Multirun):
    """The jobs of a sweep, collected as training does, and never run."""

    def __init__(self, arguments: list[str], listener: Listener) -> None:
        super().__init__(arguments, listener)
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
        self.listener.end_count()
        n_jobs, self._n_returned = len(self.found) - self._n_returned, len(self.found)
        return [None] * n_jobs

    def _keep(self, words: list[str], notes: list[Finding]) -> None:
        mistakes, self._mistakes = self._mistakes, []
        config = self._batch[-1].config if not mistakes else None
        plain = [str(word).lstrip("+").replace("\\:", ":") for word in words]
        self.found.append(JobFindings(plain, config, [*map(error, mistakes), *notes]))
        if not mistakes:
            self.jobs.append(self._batch[-1])


class _Draws(Multirun):
    """Draws some trials of the study that a command line would begin; none is run.

    Attributes:
        found: The trials that were drawn.
        together: What is wrong with the study as a whole.
        configs: What `train` would take, once for each of the study's trials and seeds.
    """

    def __init__(self, arguments: list[str], plan_study: PlanStudy) -> None:
        super().__init__(arguments)
        self._plan_study = plan_study
        self.found: list[JobFindings] = []
        self.together: list[Finding] = []
        self.configs: list[RunConfig] = []

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Draw trials."""
        plan, notes, mistakes = self._plan_study(self.arguments, compose)
        self.together = [*map(error, mistakes), *map(warning, notes)]
        self.found = [_draw(plan, number) for number in range(DRAWS)]
        self.configs = [plan.trial_base] * plan.hpo.n_trials * plan.hpo.seeds


def _draw(plan: StudyPlan, number: int) -> JobFindings:
    """Draw a trial at random, whatever the sampler: a study may come to any point of its space."""
    import optuna

    sampler = optuna.samplers.RandomSampler(seed=number)
    trial = optuna.create_study(sampler=sampler).ask()
    try:
        overrides = plan.draw(trial)
        return JobFindings(overrides, plan.trial_config(overrides, 0, "trials/0000"))
    except optuna.TrialPruned:
        return JobFindings([], None, [warning(f"hpo.custom={plan.hpo.custom} gives draws up")])
    except ConfigError as mistake:
        return JobFindings([], None, [error(str(mistake))])
