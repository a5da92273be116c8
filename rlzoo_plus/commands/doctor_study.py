"""The trials that `rlzoo-plus doctor` draws of a study: composed as the study would, never run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rlzoo_plus.commands.multirun import Multirun
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.diagnosis.command_line import MULTIRUN
from rlzoo_plus.diagnosis.findings import Finding, error, warning
from rlzoo_plus.diagnosis.outcome import JobFindings

if TYPE_CHECKING:
    from rlzoo_plus.config.composer import Composed
    from rlzoo_plus.config.schema import RunConfig
    from rlzoo_plus.tuning.study_plan import StudyPlan

DRAWS = 50


@dataclass
class DrawnStudy:
    """What is known of a study before it runs.

    Attributes:
        jobs: The trials that were drawn.
        together: What is wrong with the study as a whole.
        configs: What `train` would take, once for each of the study's trials and seeds.
    """

    jobs: list[JobFindings] = field(default_factory=list)
    together: list[Finding] = field(default_factory=list)
    configs: list[RunConfig] = field(default_factory=list)


class _Study(Multirun):
    """Takes the place of the study that a command line would begin."""

    def __init__(self, arguments: list[str]) -> None:
        super().__init__(arguments)
        self.drawn = DrawnStudy()

    def tune(self, arguments: Sequence[str], compose: Callable[[Sequence[str]], Composed]) -> None:
        """Draw trials."""
        from rlzoo_plus.commands.tuning import study_mistakes
        from rlzoo_plus.commands.tuning_plan import make_plan

        plan, notes = make_plan(self.arguments, compose)
        self.drawn.together = [*map(error, study_mistakes(plan)), *map(warning, notes)]
        self.drawn.jobs = [_draw(plan, number) for number in range(DRAWS)]
        self.drawn.configs = [plan.trial_base] * plan.hpo.n_trials * plan.hpo.seeds


def draw_trials(arguments: list[str]) -> DrawnStudy:
    """Draw some trials of the study that a command line would begin; nothing is written."""
    from rlzoo_plus.config.compose import run_hydra

    if not any(argument in MULTIRUN for argument in arguments):
        arguments = ["-m", *arguments]
    study = _Study(arguments)
    try:
        run_hydra(study.collect, arguments, study)
    except ConfigError as mistake:
        study.drawn.together.append(error(str(mistake)))
    return study.drawn


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
