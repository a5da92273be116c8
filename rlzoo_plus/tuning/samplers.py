"""The samplers and pruners of a study: Optuna's classes by name, with checked options."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.samplers import BaseSampler, CmaEsSampler
from optuna.study import StudyDirection

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.config.signatures import fit_type
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.storage import quiet_optuna

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

# Optuna warns of them, and they will be gone.
_RETIRED = (
    "consider_prior",
    "prior_weight",
    "consider_magic_clip",
    "consider_endpoints",
    "gamma",
    "weights",
    "warn_independent_sampling",
    "warn_asynchronous_seeding",
)
# Python objects, which no YAML file can hold, and what the study's other settings decide.
_NOT_OURS = (
    "after_trial_strategy",
    "child_generation_strategy",
    "constraints_func",
    "crossover",
    "elite_population_selection_strategy",
    "independent_sampler",
    "mutation",
    "search_space",
    "seed",
    "source_trials",
    "wrapped_pruner",
)


def check_options(where: str, target: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as the class takes them.

    Args:
        where: The key that holds them, e.g. `hpo.sampler_options`.
        target: The class that they are for.
        given: What the user wrote.

    Raises:
        ConfigError: A name is unknown, or a value is of the wrong kind.
    """
    known = option_types(target)
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise ConfigError(f"{where}: {unknown_name('option', str(name), known)}")
        try:
            checked[name] = fit_type(value, known[name])
        except ValueError as error:
            raise ConfigError(f"{where}.{name}={value!r} {error}.") from None
    return checked


def option_types(target: type) -> dict[str, str]:
    """Return the options that a user may give to a class, and their types as they are written."""
    return {
        name: _written(parameter.annotation)
        for name, parameter in inspect.signature(target).parameters.items()
        if name not in _RETIRED and name not in _NOT_OURS
    }


def build(where: str, target: type, options: Mapping[str, Any]) -> Any:
    """Make an object; what its constructor refuses is the user's mistake.

    Raises:
        ConfigError: The constructor refuses a value, or needs a package that is missing.
    """
    try:
        return target(**options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    except ImportError as error:
        raise ConfigError(f"{where}: {error}. Install it: pip install 'rlzoo-plus[tune]'") from None


def _written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


Grid = Mapping[str, Sequence[Any]]

_SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "qmc": "QMCSampler",
    "nsga2": "NSGAIISampler",
    "grid": "GridSampler",
}
SAMPLERS = tuple(_SAMPLERS)
_ONE_OBJECTIVE = ("cmaes",)
# Their place in the sequence, or the order of the grid, goes with the seed.
_CONSTANT_SEED = ("qmc", "grid")
_NEEDS = {"cmaes": "cmaes", "gp": "scipy", "qmc": "scipy"}
_SAMPLER_OPTIONS = "hpo.sampler_options"


class PlainCmaEsSampler(CmaEsSampler):
    """CMA-ES that stores no pickle: its state is computed anew from the values of the trials.

    Optuna keeps the optimizer as a pickle among the attributes of trials, and a storage may be
    untrusted. Here each generation that is complete is told again, which gives the same state.
    """

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw several values together.

        Raises:
            ConfigError: The storage holds something else than Optuna has written there.
        """
        try:
            return super().sample_relative(study, trial, search_space)
        # Optuna trusts the attributes of trials, and stumbles over others.
        except (LookupError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
            raise ConfigError(
                "hpo.sampler=cmaes cannot go on with what the study's storage holds: "
                f"{one_line(error)}. Go on with hpo.sampler=tpe, or begin a new study with "
                "hpo.study=NAME."
            ) from error

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> None:
        """Read no stored state; keep what it is computed from."""
        self._completed = completed_trials

    def _init_optimizer(self, trans: Any, direction: StudyDirection) -> Any:
        """Return the optimizer after all generations that are complete."""
        random, self._dim = self._cma_rng.rng, len(trans.bounds)
        before = random.get_state()
        optimizer = super()._init_optimizer(trans, direction)
        if self._get_solution_trials(self._completed, 1):
            # Optuna draws a seed for the first generation only; the later ones go on as it would.
            random.set_state(before)
        sign = 1.0 if direction == StudyDirection.MINIMIZE else -1.0
        size = optimizer.population_size
        while len(told := self._get_solution_trials(self._completed, optimizer.generation)) >= size:
            points = [(self._point(trans, trial), sign * trial.value) for trial in told[:size]]
            optimizer.tell(points)
            if self._get_solution_trials(self._completed, optimizer.generation):
                # As if it had been stored since: a copy's covariances are symmetric to the bit.
                optimizer = copy.deepcopy(optimizer)
        return optimizer

    def _get_solution_trials(self, trials: list[FrozenTrial], generation: int) -> list[FrozenTrial]:
        found = super()._get_solution_trials(trials, generation)
        if not self._with_margin:
            return found
        # Of an earlier, larger or smaller, space there are points that cannot be told.
        return [trial for trial in found if len(trial.system_attrs["x_for_tell"]) == self._dim]

    def _point(self, trans: Any, trial: FrozenTrial) -> Any:
        if self._with_margin:
            return np.array(trial.system_attrs["x_for_tell"], dtype=float)
        return trans.transform(trial.params)


class TrialSampler(BaseSampler):
    """Draws each trial with a sampler of its own, whose seed is made of the trial's number.

    So a study that goes on does not draw the same points again, and one with a single worker
    draws the same ones each time. What a sampler learns, it learns from the storage.
    """

    def __init__(self, hpo: HpoConfig, grid: Grid | None = None) -> None:
        """Check the settings.

        Raises:
            ConfigError: There is no such sampler or option.
        """
        self._hpo, self._grid = hpo, grid
        self._number, self._current = 0, make_sampler(hpo, 0, grid)

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Make the trial's sampler."""
        self._of(trial).before_trial(study, trial)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """Return what is drawn together."""
        return self._of(trial).infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw several values together."""
        return self._of(trial).sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Draw a value by itself."""
        sampler = self._of(trial)
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def after_trial(
        self,
        study: Study,
        trial: FrozenTrial,
        state: TrialState,
        values: Sequence[float] | None,
    ) -> None:
        """Do nothing: at the end of a grid, Optuna would stop a loop that is not there."""

    def _of(self, trial: FrozenTrial) -> BaseSampler:
        if trial.number != self._number:
            self._number = trial.number
            self._current = make_sampler(self._hpo, trial.number, self._grid)
        return self._current


def make_sampler(hpo: HpoConfig, number: int, grid: Grid | None = None) -> BaseSampler:
    """Make the sampler of one trial.

    Args:
        hpo: The study's settings.
        number: The trial's number.
        grid: The values of each parameter, for `hpo.sampler=grid`.

    Raises:
        ConfigError: There is no such sampler or option, or it cannot do what the study needs.
    """
    from optuna import samplers

    quiet_optuna()
    name = hpo.sampler
    if name not in _SAMPLERS:
        raise ConfigError(unknown_name("hpo.sampler", name, SAMPLERS))
    if len(hpo.objectives) > 1 and name in _ONE_OBJECTIVE:
        several = ", ".join(n for n in SAMPLERS if n not in _ONE_OBJECTIVE)
        raise ConfigError(f"hpo.sampler={name} knows one objective only; for several: {several}.")
    _require(name)
    target = PlainCmaEsSampler if name == "cmaes" else getattr(samplers, _SAMPLERS[name])
    options = check_options(_SAMPLER_OPTIONS, target, hpo.sampler_options)
    seed = hpo.seed % 2**32 if name in _CONSTANT_SEED else trial_seed(hpo.seed, number)
    sampler: BaseSampler = build(
        _SAMPLER_OPTIONS, target, {**_fixed(hpo, number, grid), **options, "seed": seed}
    )
    return sampler


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of a trial's sampler, made of the study's seed and the trial's number."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def _fixed(hpo: HpoConfig, number: int, grid: Grid | None) -> dict[str, Any]:
    """Return the arguments that are ours; options may replace some of them."""
    from optuna.samplers import RandomSampler

    if hpo.sampler == "grid":
        return {"search_space": dict(grid or {})}
    if hpo.sampler == "tpe":
        # Groups serve spaces with conditions, liars those who ask while others run.
        multivariate = hpo.sampler_options.get("multivariate", True) is not False
        return {"multivariate": True, "group": multivariate, "constant_liar": True}
    if hpo.sampler in ("qmc", "cmaes", "gp"):
        fallback = RandomSampler(seed=trial_seed(hpo.seed, number))
        return {"independent_sampler": fallback, "warn_independent_sampling": False}
    return {}


def _require(name: str) -> None:
    from importlib.util import find_spec

    package = _NEEDS.get(name)
    if package is not None and find_spec(package) is None:
        raise ConfigError(
            f"hpo.sampler={name} needs the package {package}. "
            "Install it: pip install 'rlzoo-plus[tune]'"
        )


_PRUNERS = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "hyperband": "HyperbandPruner",
    "halving": "SuccessiveHalvingPruner",
    "patient": "PatientPruner",
    "none": "NopPruner",
}
PRUNERS = tuple(_PRUNERS)
_PRUNER_OPTIONS = "hpo.pruner_options"
# Resources are rungs, twentieths of a run: after one of them a policy says too little.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "median": {"n_warmup_steps": 5},
    "percentile": {"percentile": 25.0, "n_warmup_steps": 5},
    "hyperband": {"min_resource": 2},
    "halving": {"min_resource": 2},
    "patient": {"patience": 4},
}
_LOWEST = {
    **dict.fromkeys(("n_startup_trials", "n_warmup_steps", "patience", "min_delta"), 0),
    **dict.fromkeys(("interval_steps", "n_min_trials", "min_resource", "max_resource"), 1),
    "reduction_factor": 2,
}


def make_pruner(hpo: HpoConfig, n_rungs: int) -> BasePruner:
    """Make a study's pruner.

    Args:
        hpo: The study's settings.
        n_rungs: Rungs of a whole trial: twenty for each of its seeds.

    Raises:
        ConfigError: There is no such pruner or option.
    """
    from optuna import pruners

    if hpo.pruner not in _PRUNERS:
        raise ConfigError(unknown_name("hpo.pruner", hpo.pruner, PRUNERS))
    if hpo.pruner == "none":
        # Whatever options stand in a file are those of the pruner that was put aside.
        return pruners.NopPruner()
    target = getattr(pruners, _PRUNERS[hpo.pruner])
    if hpo.pruner == "patient":
        options = _patient(hpo)
    else:
        options = _DEFAULTS.get(hpo.pruner, {}) | check_options(
            _PRUNER_OPTIONS, target, hpo.pruner_options
        )
    _check_ranges(options)
    if hpo.pruner == "hyperband":
        _limit(options, n_rungs)
    pruner: BasePruner = build(_PRUNER_OPTIONS, target, options)
    # Trial.report knows one objective only.
    return pruner if pruning_note(hpo) is None else pruners.NopPruner()


def pruning_note(hpo: HpoConfig) -> str | None:
    """Return why nothing is pruned although a pruner is chosen, or None."""
    if len(hpo.objectives) < 2 or hpo.pruner == "none":
        return None
    return f"with several objectives nothing is pruned (hpo.pruner={hpo.pruner} has no effect)"


def _patient(hpo: HpoConfig) -> dict[str, Any]:
    """Return the options of a patient pruner: its own ones, and those of the median inside."""
    from optuna.pruners import MedianPruner, PatientPruner

    own = option_types(PatientPruner)
    for name in hpo.pruner_options:
        known = {**own, **option_types(MedianPruner)}
        if name not in known:
            raise ConfigError(f"{_PRUNER_OPTIONS}: {unknown_name('option', str(name), known)}")
    for_median = {key: value for key, value in hpo.pruner_options.items() if key not in own}
    for_itself = {key: value for key, value in hpo.pruner_options.items() if key in own}
    median = check_options(_PRUNER_OPTIONS, MedianPruner, for_median)
    _check_ranges(median)
    options = _DEFAULTS["patient"] | check_options(_PRUNER_OPTIONS, PatientPruner, for_itself)
    return {"wrapped_pruner": build(_PRUNER_OPTIONS, MedianPruner, median), **options}


def _limit(options: dict[str, Any], n_rungs: int) -> None:
    """Let hyperband end where a trial ends: it would guess, and guess anew in each process."""
    if options.get("max_resource", "auto") == "auto":
        options["max_resource"] = n_rungs
    if options["max_resource"] < options["min_resource"]:
        raise ConfigError(
            f"{_PRUNER_OPTIONS}.max_resource={options['max_resource']} is below min_resource="
            f"{options['min_resource']}; both are twentieths of a run."
        )


def _check_ranges(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        lowest = _LOWEST.get(name)
        if lowest is not None and isinstance(value, (int, float)) and value < lowest:
            raise ConfigError(f"{_PRUNER_OPTIONS}.{name}={value} must be at least {lowest}.")
