"""The members of a study: their configurations, scores, and what a next one is drawn from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlzoo_plus.analysis.series import evaluation_rows
from rlzoo_plus.artifacts.provenance import command_line
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.populations.mutation import Params, Values, changed, wider_than
from rlzoo_plus.populations.population import DIVERGED, Population, Task
from rlzoo_plus.timetravel.branch_rules import NET_ARCH
from rlzoo_plus.tuning.population_settings import PopulationSettings
from rlzoo_plus.tuning.study_plan import StudyPlan

# Evaluations that a score is the mean of, and draws until one is a configuration.
_EVALUATIONS, _MOST_DRAWS = 3, 20


@dataclass(frozen=True)
class Members:
    """What the command line says of the members of a population."""

    plan: StudyPlan
    settings: PopulationSettings

    def require_growth(self) -> None:
        """Check that networks can grow, where they are to.

        Raises:
            ConfigError: They cannot.
        """
        network, values = self.plan.base.network, self.plan.base.algo.hyperparams
        why = None
        dimensions = [one for one in self.plan.space.dimensions if one.key == NET_ARCH]
        if not any(wider_than(one, param) for one in dimensions for param in one.params()):
            why = f"hpo.space has no {NET_ARCH} that is wider than another, layer by layer"
        elif network.blocks is not None or network.layer_norm:
            why = "networks with layer normalization cannot grow"
        elif values.get("use_sde"):
            why = "networks with gSDE cannot grow"
        if self.settings.grow and why is not None:
            raise ConfigError(
                f"hpo.sampler_options.grow={self.settings.grow}: {why}. Leave it out, or let the "
                f"space have e.g. {NET_ARCH}=[64,64],[128,128]."
            )

    @property
    def n_steps(self) -> int:
        """Environment steps of each member."""
        return self.plan.trial_timesteps

    def population(self) -> Population:
        """Return the population with all that was decided before; raises as `Population`."""
        folder, seed = self.plan.folder, self.plan.hpo.seed
        return Population(folder, self.settings, seed, self.n_steps, self.draw)

    def until(self, segment: int) -> int:
        """Return the step at which a part of a training ends."""
        return math.ceil(self.n_steps * segment / self.settings.segments)

    def path(self, run: str) -> Path:
        """Return the directory of a run."""
        return self.plan.folder / run

    def config(self, overrides: Sequence[str], run: str) -> RunConfig:
        """Return the configuration of a run; raises as `StudyPlan.trial_config`."""
        config = self.plan.trial_config(overrides, run)
        # An evaluation ends a part.
        evaluation, every = config.eval, config.eval.every_steps
        if isinstance(every, int) and every > self.until(1):
            evaluation = evaluation.model_copy(update={"every_steps": self.until(1)})
        # One checkpoint a part, all of which others may go on from.
        kept = config.checkpoint.model_copy(
            update={
                **{"every_steps": None, "every_minutes": None, "milestone_steps": None},
                **{"keep": self.settings.segments + 1, "keep_best": False},
            }
        )
        changes = {"run_dir": str(self.path(run)), "checkpoint": kept, "eval": evaluation}
        return config.model_copy(update=changes)

    def draw(
        self, member: int, source: Params | None, before: Sequence[str], rng: np.random.Generator
    ) -> tuple[Params, list[str]]:
        """Draw a member's values, as `Population` asks for them.

        Raises:
            ConfigError: No draw is a configuration.
        """
        reason = ""
        for _ in range(_MOST_DRAWS):
            known: Params = {}
            if source is not None:
                known = changed(self.plan.space, source, before, self.settings, rng)
            elif member == 0 and self.plan.hpo.warm_start:
                known, _ = self.plan.space.encode(self.plan.fixed_values)
            values: Any = Values(member, known, rng)
            try:
                overrides = self.plan.draw(values)
                self.config(overrides, f"members/{member:03}/0")
            except ConfigError as error:
                reason = str(error)
                continue
            return values.params, overrides
        raise ConfigError(
            f"hpo.space: {_MOST_DRAWS} draws were tried and none is a configuration, the last: "
            f"{reason}"
        )

    def data(self, task: Task, parent: Task | None) -> dict[str, Any]:
        """Return what `run_member` takes; `parent` is a task of the run that a branch begins at."""
        config = self.config(task.overrides, task.run)
        words = ["rlzoo-plus", "train", "-m", *self.plan.fixed, f"hpo.study={self.plan.folder}"]
        found: dict[str, Any] = {
            "config": config.model_dump(),
            "command": command_line(words),
            "until": self.until(task.segment),
        }
        if parent is not None:
            found |= {
                "parent": str(self.path(parent.run)),
                "parent_config": self.config(parent.overrides, parent.run).model_dump(),
                "parent_step": task.parent_step,
            }
        return found

    def score(self, run: str, step: int) -> float:
        """Return the mean return of the last evaluations of a run up to a step."""
        rows = [row for row in evaluation_rows(RunDir(self.path(run))) if row["step"] <= step]
        means = [float(row["mean_return"]) for row in rows[-_EVALUATIONS:]]
        return float(np.mean(means)) if means and np.isfinite(means).all() else DIVERGED
