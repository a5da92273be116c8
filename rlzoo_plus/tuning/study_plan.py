"""The plan of a study: its settings, its space, and the configurations of its trials."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.errors import HydraException

from rlzoo_plus.config.composer import Composed
from rlzoo_plus.config.hydra_errors import explain
from rlzoo_plus.config.mistakes import shown
from rlzoo_plus.config.overrides import TRUST, partition, prepare_overrides, typed_values
from rlzoo_plus.config.own_code import is_harmless, refuse_foreign
from rlzoo_plus.config.resolve import UNHASHED, config_hash
from rlzoo_plus.config.schema import HpoConfig, RunConfig
from rlzoo_plus.envs.single import scheduled
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.runs.load import Resolver
from rlzoo_plus.sweeps.refusals import refusals
from rlzoo_plus.tuning.dimensions import Trial
from rlzoo_plus.tuning.objectives import FOLLOWED, METRICS, RUNGS, parse_constraints
from rlzoo_plus.tuning.override_values import parse_override
from rlzoo_plus.tuning.population_settings import PBT, population_mistakes, read_settings
from rlzoo_plus.tuning.samplers import make_pruner, make_sampler
from rlzoo_plus.tuning.space import Space
from rlzoo_plus.tuning.storage import check_storage
from rlzoo_plus.tuning.study_folder import study_folder
from rlzoo_plus.tuning.trials import TrialView
from rlzoo_plus.tuning.with_optuna import optuna

# Far from the seeds that people type, so that retraining is on seeds no trial has seen.
FRESH_SEEDS = 1_000


@dataclass(frozen=True)
class StudyPlan:
    """What a study is to do."""

    name: str
    folder: Path
    hpo: HpoConfig
    space: Space
    fixed: tuple[str, ...]  # The overrides of the command line that hold for every trial
    base: RunConfig  # The configuration that `train` would take with nothing drawn
    trial_base: RunConfig  # The same with the length of a trial
    compose: Callable[[Sequence[str]], RunConfig]  # Of `fixed` and more overrides, as `train`
    trust: bool = False  # Compose whatever the study has stored
    drawn: set[str] = field(default_factory=set)  # What its space drew and needs trust when stored

    @property
    def fixed_values(self) -> dict[str, Any]:
        """What a trial's values are put on top of, nested."""
        return self.trial_base.model_dump(mode="json")

    @property
    def trial_timesteps(self) -> int:
        """Environment steps of a trial's run."""
        return min(self.hpo.n_timesteps or self.base.n_timesteps, self.base.n_timesteps)

    @property
    def n_runs(self) -> tuple[int, int]:
        """How many runs trials or members have, and how many follow at full length."""
        hpo, again = self.hpo, self.hpo.retrain
        if hpo.sampler == PBT:
            return read_settings(hpo.sampler_options).population, 0
        return hpo.n_trials * hpo.seeds, min(again.best, hpo.n_trials) * again.seeds

    @property
    def followed(self) -> str | None:
        """The metric that is reported while a run goes on, None if nothing can be."""
        names = list(self.hpo.objectives)
        return names[0] if len(names) == 1 and names[0] in FOLLOWED else None

    def grid(self) -> dict[str, list[Any]] | None:
        """Return the values of each parameter if the sampler goes through all of them."""
        return self.space.grid() if self.hpo.sampler == "grid" else None

    def draw(self, trial: Trial) -> list[str]:
        """Draw a trial's overrides; errors as of `Space.draw`."""
        overrides = self.space.draw(trial, self.fixed_values)
        self.drawn.update(word for word in overrides if not is_harmless(word))
        return overrides

    def draw_again(self, view: TrialView) -> None:
        """Draw a stored trial's values anew: what the space gives for them is the user's own."""
        # Of values that this space does not give, nothing is the user's own.
        odd = (ConfigError, optuna.TrialPruned, ValueError, TypeError, OverflowError)
        with contextlib.suppress(*odd):
            self.draw(optuna.trial.FixedTrial(view.params, view.number))

    def trial_config(self, overrides: Sequence[str], folder: str) -> RunConfig:
        """Return the configuration of a trial's first run: what `train` would take, placed.

        Raises:
            ConfigError: The values cannot go together.
            UntrustedError: They are not drawn here, and may import code.
        """
        config = self._composed([*overrides, *_length(self.hpo, self.base)])
        if config.eval.every_steps is None:
            raise ConfigError("eval.every_steps=null: without evaluations there is no objective.")
        placed = {"seed": self.base.seed, "run_dir": str(self.run_path(folder, 0)), "sweep": None}
        return config.model_copy(update=placed)

    def full_config(self, overrides: Sequence[str], seed_index: int) -> RunConfig:
        """Return the configuration of a trial's values at full length, with a fresh seed."""
        config = self._composed(overrides)
        seed, sweep = self.base.seed + FRESH_SEEDS + seed_index, str(self.folder / "retrain")
        return config.model_copy(update={"seed": seed, "run_dir": None, "sweep": sweep})

    def run_path(self, folder: str, seed_index: int) -> Path:
        """Return the directory of one run of a trial."""
        return self.folder / folder / f"s{seed_index}"

    def _composed(self, overrides: Sequence[str]) -> RunConfig:
        """Compose overrides that may come from an untrusted storage, as a trial trains them."""
        where = f"the study {self.folder}"
        refuse_foreign(overrides, where, trust=self.trust, own=self.drawn)
        config = self.compose(overrides)
        # Threads change the last bits of a result, and so does nothing else of where it runs.
        placed = {
            "num_threads": 1 if config.num_threads == "auto" else config.num_threads,
            "report": config.report.model_copy(update={"plot": False, "video": False}),
            "tracker": None,
            "resume": "auto",
            "restart": False,
        }
        return config.model_copy(update=placed)


def _length(hpo: HpoConfig, base: RunConfig) -> list[str]:
    """Return the override that makes a trial shorter than the training that it is for."""
    is_shorter = hpo.n_timesteps is not None and hpo.n_timesteps < base.n_timesteps
    return [f"n_timesteps={hpo.n_timesteps}"] if is_shorter else []


def check_settings(hpo: HpoConfig, base: RunConfig, given: Collection[str] = ()) -> list[str]:
    """Return what is wrong with the settings besides their types; `given` are the user's keys."""
    mistakes = [
        unknown_name("hpo.objectives", name, METRICS)
        for name in hpo.objectives
        if name not in METRICS
    ]
    if hpo.algo is not None and hpo.algo != base.algo.name:
        mistakes.append(
            f"the search space is for algo={hpo.algo}, but algo={base.algo.name} is chosen. "
            f"Use hpo={base.algo.name}, or algo={hpo.algo}."
        )
    if base.eval.every_steps is None:
        mistakes.append("eval.every_steps=null: without evaluations a study has no objective.")
    is_given = "hpo.n_timesteps" in given and hpo.n_timesteps is not None
    if is_given and (hpo.n_timesteps or 0) > base.n_timesteps:
        mistakes.append(
            f"hpo.n_timesteps={hpo.n_timesteps} is longer than the training that it is for "
            f"(n_timesteps={base.n_timesteps}). Make it shorter, or leave it out."
        )
    return mistakes


def about_study(plan: StudyPlan) -> dict[str, Any]:
    """Return what must stay the same for as long as a study goes on."""
    hpo: Mapping[str, Any] = plan.hpo.model_dump(mode="json")
    decisive = ("objectives", "seeds", "constraints")
    # Without where and how something is run or shown. Of a key that is there twice, the last.
    no_matter = (*UNHASHED, "device")
    keys = {word: word.split("=")[0] for word in plan.fixed}
    last = {keys[w]: w for w in plan.fixed if keys[w].lstrip("+~").split(".")[0] not in no_matter}
    return {
        "base": sorted(last.values()),
        "n_timesteps": plan.trial_timesteps,
        "config_hash": config_hash(plan.trial_base),
        **{name: hpo[name] for name in decisive},
    }


# The space is wrong after so many invalid draws, or fewer with the same reason.
_MOST_DRAWS = 20
_SAME_REASON = 3


def check_draws(plan: StudyPlan) -> None:
    """Draw until a draw is a configuration; raise a ConfigError with the reason if none is."""
    reasons: list[str] = []
    for number in range(_MOST_DRAWS):
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=number))
        try:
            # An error here is one of the space itself.
            overrides = plan.draw(study.ask())
        except optuna.TrialPruned as error:
            reasons.append(str(error) or f"{plan.hpo.custom} pruned it.")
        else:
            try:
                plan.trial_config(overrides, "trials/0000")
                return
            except ConfigError as error:
                reasons.append(str(error))
        if len(reasons) >= _SAME_REASON and len(set(reasons)) == 1:
            break
    raise ConfigError(
        f"hpo.space: {len(reasons)} draws were tried and none is a configuration, "
        f"the last: {reasons[-1]}"
    )


Compose = Callable[[Sequence[str]], Composed]
# What one study has one of; the fix for those who want several.
_ONE_OF = {
    "env": "Returns of different environments do not compare: tune each in a study of its own.",
    "algo": "A search space is for one algorithm: tune each in a study of its own.",
    "seed": "hpo.seeds=3 lets each trial train three seeds.",
    "n_timesteps": "hpo.n_timesteps=... sets the length of the trials.",
    "env.id": "Tune each environment in a study of its own.",
}


def make_plan(arguments: list[str], compose: Compose) -> tuple[StudyPlan, list[str]]:
    """Plan the study of a command line; return the plan and what the user should know."""
    words = partition(arguments)[1]
    sweeps = [word for word in words if _is_sweep(word)]
    _refuse_sweeps(sweeps)
    plain = [word for word in words if word not in sweeps]
    plain += _algorithm_of_space(compose, plain)
    resolver = Resolver(arguments)
    given = typed_values(plain)
    if given.get("sweep") is not None:
        raise ConfigError(
            f"sweep={shown(given['sweep'])}: a study has its name from hpo.study. Write "
            f"hpo.study={shown(given['sweep'])}."
        )

    def resolve(overrides: Sequence[str], *, tunes: bool = False) -> tuple[RunConfig, list[str]]:
        config, told = resolver.resolve(compose(prepare_overrides(overrides)), tunes=tunes)
        # The space and the rungs of a study count on numbers.
        return scheduled(config, decides=True), told

    base, notes = resolve(plain, tunes=True)
    hpo = base.hpo
    assert hpo is not None
    of_hpo = [key for key in typed_values(plain) if key.split(".")[0] == "hpo"]
    mistakes = check_settings(hpo, base, of_hpo)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    fixed = [word for word in plain if not {*typed_values([word])} & {*of_hpo}]
    trial_base, _ = resolve([*fixed, *_length(hpo, base)])
    space, hpo = _searched(hpo, [*fixed, *sweeps], trial_base)
    folder = study_folder(hpo.study or f"{base.env.name}-{base.algo.name}")
    plan = StudyPlan(
        name=folder.name,
        folder=folder,
        hpo=hpo,
        space=space,
        fixed=tuple(fixed),
        base=base.model_copy(update={"hpo": None}),
        trial_base=trial_base,
        compose=lambda overrides: resolve([*fixed, *overrides])[0],
        trust=TRUST in arguments,
    )
    return plan, notes


def _searched(hpo: HpoConfig, words: list[str], present: RunConfig) -> tuple[Space, HpoConfig]:
    """Return the space that the command line leaves, and the settings with it."""
    values = present.model_dump(mode="json")
    space = Space.parse(hpo.space, hpo.custom).with_overrides(words)
    if hpo.sampler == "grid":
        space = space.settled(values)
        size = math.prod(len(params) for params in space.grid().values())
        hpo = hpo.model_copy(update={"n_trials": min(hpo.n_trials, size)})
    else:
        # What train takes can then be the first trial.
        space = space.with_present(values).settled(values)
    return space, hpo.model_copy(update={"space": space.entries()})


def _algorithm_of_space(compose: Compose, plain: list[str]) -> list[str]:
    """Choose the algorithm that a search space is for, unless one is chosen."""
    # The choice of an experiment must not be overruled silently.
    if {"algo", "experiment"} & set(typed_values(plain)):
        return []
    hpo = compose(prepare_overrides(plain)).values.get("hpo")
    return [f"algo={hpo['algo']}"] if hpo and hpo.get("algo") else []


def _is_sweep(word: str) -> bool:
    try:
        return parse_override(word).is_sweep_override()
    except HydraException as error:
        raise ConfigError(explain(error, [word])) from error


def _refuse_sweeps(words: list[str]) -> None:
    for key in typed_values(words):
        own = key.removeprefix("hpo.space.")
        if own != key:
            raise ConfigError(f"{key}: a sweep is written without hpo.space: {own}=...")
        if key in _ONE_OF or key.split(".")[0] == "hpo":
            fix = _ONE_OF.get(key, "Start one study for each.")
            raise ConfigError(f"{key}: a study has one value of it. {fix}")


def study_mistakes(plan: StudyPlan) -> list[str]:
    """Return what is wrong with a study, all of it; nothing is written."""
    hpo, found = plan.hpo, []
    if hpo.sampler == PBT:
        return [*population_mistakes(hpo), *refusals([plan.base])]
    checks: list[Callable[[], object]] = [
        lambda: make_sampler(hpo, 0, plan.grid()),
        lambda: make_pruner(hpo, RUNGS * hpo.seeds),
        lambda: parse_constraints(hpo.constraints),
        lambda: check_storage(hpo.storage),
    ]
    for check in checks:
        try:
            check()
        except ConfigError as error:
            found.append(str(error))
    return [*found, *refusals([plan.base])]
