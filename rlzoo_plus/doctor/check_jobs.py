"""Checks all jobs of a command line as training would, writes nothing, and returns findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from rich.text import Text

from rlzoo_plus.config.hyperparams import updates_per_step
from rlzoo_plus.config.resolve import resolve
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.advice import advice, machine_advice, slots_for
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load_typed
from rlzoo_plus.runs.plan import plan_run
from rlzoo_plus.sweeps.estimate import Estimate
from rlzoo_plus.sweeps.multirun import MULTIRUN, Multirun, is_search, several_sweeps
from rlzoo_plus.sweeps.probe import ProbeResult
from rlzoo_plus.sweeps.refusals import ON_THIS_MACHINE, Refusals
from rlzoo_plus.sweeps.sweep_view import SweepView

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.tuning.study_plan import StudyPlan

DRAWS = 50
_MOST_NAMED = 3
_LONGEST_NAMES = 200

# Making an environment takes up to a second.
_refusals = Refusals()


class Level(StrEnum):
    """How much a finding matters: with an error nothing is trained, a warning is advice."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One error or warning."""

    level: Level  # How much it matters
    text: str  # The value, the rule and the fix


error = partial(Finding, Level.ERROR)
warning = partial(Finding, Level.WARNING)


@dataclass
class JobFindings:
    """A job that was composed, or could not be."""

    overrides: list[str]  # Its overrides
    config: RunConfig | None  # None if it is refused
    findings: list[Finding] = field(default_factory=list)  # Its errors and warnings


@dataclass
class Outcome:
    """All findings of a command line, and what a probe measured."""

    findings: dict[Finding, list[str]]  # With the jobs that have each
    configs: list[RunConfig]  # The jobs that were composed
    n_jobs: int  # All jobs
    is_sweep: bool  # Whether they are jobs of a sweep
    result: ProbeResult | None = None  # What a probe measured, None without one
    estimate: Estimate | None = None  # How long all will take
    overrides: list[str] = field(default_factory=list)  # What to add to the command line
    plan: list[str] = field(default_factory=list)  # In AWS: what it costs, as lines
    draws: int | None = None  # Of a study: how many trials were drawn and checked
    work: str = ""  # Of a study: its trials and the runs after them

    @property
    def is_refused(self) -> bool:
        """Whether training would not begin."""
        return any(finding.level is Level.ERROR for finding in self.findings)

    def counts(self) -> str:
        """Return how many findings of each level there are, as text."""
        texts = []
        for level in Level:
            count = sum(finding.level is level for finding in self.findings)
            if count:
                texts.append(f"{count} {level}{'s' if count > 1 else ''}")
        return ", ".join(texts) or "nothing wrong"

    def as_data(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        probe = None
        if self.result is not None:
            training_s = self.estimate and round(self.estimate.training_s, 1)
            probe = {
                "measurements": [measurement.as_data() for measurement in self.result.measurements],
                "left_out": [kind.name for kind in self.result.left_out],
                "overrides": self.overrides,
                "training_s": training_s,
                "with_evaluations_s": self.estimate and self.estimate.with_evaluations_s,
            }
        findings = [
            {"level": str(found.level), "text": found.text, "n_jobs": len(jobs), "jobs": jobs}
            for found, jobs in self.findings.items()
        ]
        data = {"jobs": self.n_jobs, "findings": findings, "probe": probe}
        return {**data, "plan": self.plan} if self.plan else data


def check_jobs(arguments: list[str], view: SweepView) -> Outcome:
    """Compose all jobs of a `train` command, where `-m` may be missing, and check them."""
    is_study, has_option = is_search(arguments), any(word in MULTIRUN for word in arguments)
    is_sweep = is_study or has_option or any(map(_is_sweep_override, arguments))
    if is_sweep and not has_option:
        arguments = ["-m", *arguments]
    planned = _Jobs(arguments, view)
    jobs, together = planned.found, planned.together
    try:
        if is_sweep:
            planned.execute()
            planned.check_together()
        else:
            jobs += _single(arguments)
    except ConfigError as mistake:
        if is_study:
            together.append(error(str(mistake)))
        else:
            jobs[:] = [JobFindings([], None, [error(str(mistake))])]
    configs = [job.config for job in jobs if job.config is not None]
    # All environments at once, which is faster than one by one.
    _refusals.try_environments(configs)
    for job in jobs:
        if job.config is not None:
            job.findings += diagnose(job.config)
    names = names_of(jobs)
    if is_study:
        names = [f"draw {number}" for number in range(len(jobs))] or ["the study"]
        configs = planned.configs
    has_error = any(found.level is Level.ERROR for job in jobs for found in job.findings)
    if configs and not has_error and configs[0].infra.name in ON_THIS_MACHINE:
        slots = slots_for(configs) if is_sweep else 1
        texts = machine_advice(configs, slots, Path(configs[0].run_dir or "outputs"))
        together += map(warning, texts)
    per_job = [(name, job.findings) for name, job in zip(names, jobs, strict=False)]
    findings = shared([*per_job, *((name, together) for name in names)])
    draws = len(jobs) if is_study else None
    return Outcome(findings, configs, len(names), is_sweep, draws=draws, work=planned.work)


def diagnose(config: RunConfig) -> list[Finding]:
    """Return the errors and warnings of a resolved configuration; nothing is written.

    The environment is made once for all configurations that share it, and so is the agent, on the
    CPU and with a small replay buffer: only the constructors of the library refuse some values.
    """
    found: list[Finding] = []
    try:
        found += map(warning, resolve(config.model_dump()).warnings)
        refused = _refusals.of(config)
        if refused:
            return [*found, *map(error, refused)]
        found += map(warning, _refusals.doubts_of(config))
        # Importing torch takes a second.
        from rlzoo_plus.doctor.building import agent_facts

        return [*found, *map(warning, advice(config, agent_facts(config)))]
    except ConfigError as mistake:
        return [*found, error(str(mistake))]


def _is_sweep_override(argument: str) -> bool:
    """Return whether an argument has several values, as `seed=1,2` and `range` do."""
    if argument.startswith("-") or "=" not in argument:
        return False
    try:
        (override,) = OverridesParser.create().parse_overrides([argument])
    except HydraException:
        # Composing the jobs reports it.
        return False
    return bool(override.is_sweep_override())


def _single(arguments: list[str]) -> list[JobFindings]:
    return [
        JobFindings([], plan_run(config).config, [*map(warning, notes)])
        for config, notes in load_typed(arguments)
    ]


class _Jobs(Multirun):
    """The jobs of a sweep, or draws of a study, collected as training does and never run."""

    def __init__(self, arguments: list[str], view: SweepView) -> None:
        super().__init__(arguments, view)
        self._n_returned = 0
        self.found: list[JobFindings] = []  # jobs, or trials that were drawn
        self.together: list[Finding] = []  # of all jobs
        self.configs: list[RunConfig] = []  # of a study, one for each run
        self.work = ""  # of a study, what `Outcome.work` says

    def collect(self, composed: Composed) -> None:
        """Check the configuration of a job as training does, and keep mistakes and notes."""
        n_notes = len(self._notes)
        super().collect(composed)
        self._keep(composed.overrides, self._notes[n_notes:])

    def refuse(self, error: Exception, overrides: Sequence[str]) -> None:
        """Keep the reason why a job cannot be composed."""
        super().refuse(error, overrides)
        self._keep(overrides, [])

    def _keep(self, overrides: Sequence[str], notes: list[str]) -> None:
        mistakes, self._mistakes = self._mistakes, []
        plain = [str(word).lstrip("+").replace("\\:", ":") for word in overrides]
        config = None if mistakes else self._batch[-1].config
        findings = [*map(error, mistakes), *map(warning, notes)]
        self.found.append(JobFindings(plain, config, findings))

    def run(self) -> list[float | None]:
        """Run nothing."""
        self.view.end_count()
        n_jobs, self._n_returned = len(self.found) - self._n_returned, len(self.found)
        return [None] * n_jobs

    def check_together(self) -> None:
        """Find mistakes of all jobs together."""
        self.together += map(error, several_sweeps(self._batch))
        n_same = len(self._batch) - len({job.key for job in self._batch})
        if n_same:
            text = f"{n_same} of the jobs are the same run as another one"
            self.together.append(warning(text))

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Draw trials of the study; none is run."""
        # Importing Optuna takes a second.
        from rlzoo_plus.tuning.study_plan import make_plan, study_mistakes

        plan, notes = make_plan(self.arguments, compose)
        self.together += [*map(error, study_mistakes(plan)), *map(warning, notes)]
        self.found += [_draw(plan, number) for number in range(DRAWS)]
        drawn = [job.config for job in self.found if job.config is not None]
        usual = _usual(drawn) if drawn else plan.trial_base
        n_trials, n_again = plan.n_runs
        steps = plan.base.n_timesteps
        self.configs = [usual] * n_trials
        self.configs += [usual.model_copy(update={"n_timesteps": steps})] * n_again
        self.work = f"{n_trials} runs of trials, {usual.n_timesteps:,} steps each"
        if n_again:
            self.work += f", and {n_again} of the best again, {steps:,} steps each"


def _usual(drawn: Sequence[RunConfig]) -> RunConfig:
    """Return the draw whose updates for each environment step are nearest to the mean of all."""
    updates = [updates_per_step(config.algo, config.n_envs) for config in drawn]
    mean = sum(updates) / len(updates)
    return drawn[min(range(len(drawn)), key=lambda number: abs(updates[number] - mean))]


def _draw(plan: StudyPlan, number: int) -> JobFindings:
    """Draw a trial at random: any sampler may reach any point of the search space."""
    import optuna

    sampler = optuna.samplers.RandomSampler(seed=number)
    trial = optuna.create_study(sampler=sampler).ask()
    try:
        overrides = plan.draw(trial)
        return JobFindings(overrides, plan.trial_config(overrides, "trials/0000"))
    except optuna.TrialPruned:
        return JobFindings([], None, [warning(f"hpo.custom={plan.hpo.custom} prunes draws")])
    except ConfigError as mistake:
        return JobFindings([], None, [error(str(mistake))])


def shared(per_job: Iterable[tuple[str, Iterable[Finding]]]) -> dict[Finding, list[str]]:
    """Return the names of the jobs that have each finding; errors come first."""
    found: dict[Finding, list[str]] = {}
    for job, findings in per_job:
        for finding in dict.fromkeys(findings):
            found.setdefault(finding, []).append(job)
    return {one: found[one] for one in sorted(found, key=lambda one: one.level is not Level.ERROR)}


def names_of(jobs: list[JobFindings]) -> list[str]:
    """Name each job by the overrides that not all of them have."""
    composed = [set(job.overrides) for job in jobs if job.overrides]
    common = set.intersection(*composed) if composed else set()
    own = (" ".join(word for word in job.overrides if word not in common) for job in jobs)
    return [name or f"job {number}" for number, name in enumerate(own)]


def finding_text(finding: Finding, jobs: list[str], n_jobs: int) -> Text:
    """Return a finding, and which jobs have it if there are several jobs."""
    colour = "red" if finding.level is Level.ERROR else "yellow"
    text = Text.assemble((f"{finding.level}:", colour), f" {finding.text}")
    if n_jobs == 1:
        return text
    which = f"in all {n_jobs} jobs"
    if len(jobs) < n_jobs:
        named = [job for job in jobs if job][:_MOST_NAMED]
        names = "; ".join(named)
        names = names if len(names) <= _LONGEST_NAMES else names[: _LONGEST_NAMES - 3] + "..."
        which = f"in {len(jobs)} of {n_jobs} jobs: {names}{', ...' * (len(jobs) > len(named))}"
    return text.append(f"\n  {which}", style="dim")
