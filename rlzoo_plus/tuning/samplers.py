"""The samplers and pruners of a study: Optuna's classes by name, with checked options."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from importlib import util
from typing import Any

import numpy as np

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.schema import HpoConfig
from rlzoo_plus.config.signatures import fit_type
from rlzoo_plus.errors import ConfigError, unknown_name
from rlzoo_plus.tuning.population_settings import PBT
from rlzoo_plus.tuning.with_optuna import FrozenTrial, optuna

_NO_OPTIONS = (
    # Deprecated in Optuna.
    *("consider_prior", "prior_weight", "consider_magic_clip", "consider_endpoints"),
    *("gamma", "weights", "warn_independent_sampling", "warn_asynchronous_seeding"),
    # Python objects, which no YAML file can hold, and what the study's other settings decide.
    *("after_trial_strategy", "child_generation_strategy", "constraints_func", "crossover"),
    *("elite_population_selection_strategy", "independent_sampler", "mutation"),
    *("search_space", "seed", "source_trials", "wrapped_pruner"),
)


def check_options(where: str, given: Mapping[str, Any], *targets: type) -> list[dict[str, Any]]:
    """Return the options of each class; one is for the first class that has it."""
    known = [_option_types(target) for target in targets]
    checked: list[dict[str, Any]] = [{} for _ in targets]
    for name, value in given.items():
        place = next((place for place, types in enumerate(known) if name in types), None)
        if place is None:
            names = [name for types in known for name in types]
            raise ConfigError(f"{where}: {unknown_name('option', str(name), names)}")
        try:
            checked[place][name] = fit_type(value, known[place][name])
        except ValueError as error:
            raise ConfigError(f"{where}.{name}={value!r} {error}.") from None
    return checked


def _option_types(target: type) -> dict[str, str]:
    """Return the options that a user may give to a class, and their types as written."""
    annotations = {
        name: parameter.annotation
        for name, parameter in inspect.signature(target).parameters.items()
        if name not in _NO_OPTIONS
    }
    return {
        name: written if isinstance(written, str) else inspect.formatannotation(written)
        for name, written in annotations.items()
    }


def build(where: str, target: type, options: Mapping[str, Any]) -> Any:
    """Create an object; raise a ConfigError if its constructor refuses a value."""
    try:
        return target(**options)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{where}: {error}") from None
    except ImportError as error:
        raise ConfigError(f"{where}: {error}. Install it: pip install 'rlzoo-plus[tune]'") from None


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


class _Renumbered:
    """A sampler that draws for the number that a trial would have if no attempt had been lost."""

    number: int | None = None  # That of the trial itself if None

    def renumbered(self, trial: FrozenTrial) -> FrozenTrial:
        """Return the trial, of the same storage, with that number."""
        trial = copy.copy(trial)
        if self.number is not None:
            trial.number = self.number
        return trial


class OrderedGridSampler(_Renumbered, optuna.samplers.GridSampler):
    """A grid of which each trial takes the point of its own number."""

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        """Choose the point."""
        super().before_trial(study, self.renumbered(trial))


class OrderedQmcSampler(_Renumbered, optuna.samplers.QMCSampler):
    """A quasi-random sequence of which each trial takes the point of its own number.

    Optuna counts the points that were drawn: a lost attempt would use up another one.
    """

    def _find_sample_id(self, study: optuna.Study, search_space: Mapping[str, Any]) -> int:
        return self.number or 0


class PlainCmaEsSampler(_Renumbered, optuna.samplers.CmaEsSampler):
    """CMA-ES that stores no pickle: its state is computed anew from the values of the trials.

    Optuna keeps the optimizer as a pickle among the attributes of trials, and a storage may be
    untrusted. Here the optimizer gets each complete generation again, which gives the same state.
    """

    def sample_relative(
        self,
        study: optuna.Study,
        trial: FrozenTrial,
        search_space: dict[str, optuna.distributions.BaseDistribution],
    ) -> dict[str, Any]:
        """Draw several values together."""
        try:
            return super().sample_relative(study, self.renumbered(trial), search_space)
        # Optuna does not check the attributes of trials.
        except (LookupError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
            raise ConfigError(
                "hpo.sampler=cmaes cannot go on with what the study's storage holds: "
                f"{one_line(error)}. Go on with hpo.sampler=tpe, or begin a new study with "
                "hpo.study=NAME."
            ) from error

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> None:
        """Read no stored state; keep what it is computed from."""
        self._completed = completed_trials

    def _init_optimizer(self, trans: Any, direction: optuna.study.StudyDirection) -> Any:
        """Return the optimizer after all generations that are complete."""
        random, self._dim = self._cma_rng.rng, len(trans.bounds)
        before = random.get_state()
        optimizer = super()._init_optimizer(trans, direction)
        if self._get_solution_trials(self._completed, 1):
            # Optuna draws a seed for the first generation only; the later ones go on as it would.
            random.set_state(before)
        sign = 1.0 if direction == optuna.study.StudyDirection.MINIMIZE else -1.0
        size = optimizer.population_size
        while len(told := self._get_solution_trials(self._completed, optimizer.generation)) >= size:
            values = (sign * float(trial.value or 0.0) for trial in told[:size])
            points = (self._point(trans, trial) for trial in told[:size])
            optimizer.tell(list(zip(points, values, strict=True)))
            if self._get_solution_trials(self._completed, optimizer.generation):
                # As if it had been stored since: a copy's covariances are symmetric to the bit.
                optimizer = copy.deepcopy(optimizer)
        return optimizer

    def _get_solution_trials(self, trials: list[FrozenTrial], generation: int) -> list[FrozenTrial]:
        found = super()._get_solution_trials(trials, generation)
        if not self._with_margin:
            return found
        # Points of an earlier, larger or smaller, space do not fit.
        return [trial for trial in found if len(trial.system_attrs["x_for_tell"]) == self._dim]

    def _point(self, trans: Any, trial: FrozenTrial) -> Any:
        if self._with_margin:
            return np.array(trial.system_attrs["x_for_tell"], dtype=float)
        return trans.transform(trial.params)


_OWN = {"cmaes": PlainCmaEsSampler, "grid": OrderedGridSampler, "qmc": OrderedQmcSampler}


def make_sampler(
    hpo: HpoConfig, number: int, grid: Grid | None = None
) -> optuna.samplers.BaseSampler:
    """Create the sampler of one trial.

    Args:
        hpo: Names it, and has its options.
        number: Of the trial, not counting attempts that were lost.
        grid: The values of each parameter, for `sampler=grid`.
    """
    name = hpo.sampler
    if name not in _SAMPLERS:
        raise ConfigError(unknown_name("hpo.sampler", name, (*SAMPLERS, PBT)))
    if len(hpo.objectives) > 1 and name in _ONE_OBJECTIVE:
        several = ", ".join(n for n in SAMPLERS if n not in _ONE_OBJECTIVE)
        raise ConfigError(f"hpo.sampler={name} knows one objective only; for several: {several}.")
    if name in _NEEDS and util.find_spec(_NEEDS[name]) is None:
        raise ConfigError(
            f"hpo.sampler={name} needs the package {_NEEDS[name]}. "
            "Install it: pip install 'rlzoo-plus[tune]'"
        )
    target = _OWN.get(name, getattr(optuna.samplers, _SAMPLERS[name]))
    seed = hpo.seed % 2**32 if name in _CONSTANT_SEED else trial_seed(hpo.seed, number)
    (options,) = check_options(_SAMPLER_OPTIONS, hpo.sampler_options, target)
    defaults: dict[str, Any] = {}
    if name == "grid":
        defaults = {"search_space": dict(grid or {})}
    elif name == "tpe":
        # Groups serve spaces with conditions, liars those who ask while others run.
        multivariate = hpo.sampler_options.get("multivariate", True) is not False
        defaults = {"multivariate": True, "group": multivariate, "constant_liar": True}
    elif name in ("qmc", "cmaes", "gp"):
        fallback = optuna.samplers.RandomSampler(seed=trial_seed(hpo.seed, number))
        defaults = {"independent_sampler": fallback, "warn_independent_sampling": False}
    made: optuna.samplers.BaseSampler = build(
        _SAMPLER_OPTIONS, target, {**defaults, **options, "seed": seed}
    )
    if isinstance(made, _Renumbered):
        made.number = number
    return made


def trial_seed(seed: int, number: int) -> int:
    """Return the seed of a trial's sampler, made of the study's seed and the trial's number."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


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
# Resources are rungs, twentieths of a run: after one of them a policy has hardly learned.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "median": {"n_warmup_steps": 5},
    "percentile": {"percentile": 25.0, "n_warmup_steps": 5},
    "hyperband": {"min_resource": 2},
    "halving": {"min_resource": 2},
    "patient": {"patience": 4},
}


def make_pruner(hpo: HpoConfig, n_rungs: int) -> optuna.pruners.BasePruner:
    """Create a study's pruner, for trials of so many rungs: twenty for each seed."""
    name = hpo.pruner
    if name not in _PRUNERS:
        raise ConfigError(unknown_name("hpo.pruner", name, PRUNERS))
    if name == "none":
        # The options in a file are those of the pruner that was put aside.
        return optuna.pruners.NopPruner()
    targets = [getattr(optuna.pruners, _PRUNERS[name])]
    # Patience is for another pruner, whose options are given with its own.
    targets += [optuna.pruners.MedianPruner] if name == "patient" else []
    own, *inner = check_options(_PRUNER_OPTIONS, hpo.pruner_options, *targets)
    options = _DEFAULTS[name] | own
    if name == "patient":
        options["wrapped_pruner"] = build(_PRUNER_OPTIONS, targets[1], inner[0])
    if name == "hyperband":
        _check_hyperband(options, n_rungs)
    pruner: optuna.pruners.BasePruner = build(_PRUNER_OPTIONS, targets[0], options)
    # Trial.report knows one objective only.
    return pruner if pruning_note(hpo) is None else optuna.pruners.NopPruner()


def pruning_note(hpo: HpoConfig) -> str | None:
    """Return why nothing is pruned although a pruner is chosen, or None."""
    if len(hpo.objectives) < 2 or hpo.pruner == "none":
        return None
    return f"with several objectives nothing is pruned (hpo.pruner={hpo.pruner} has no effect)"


def _check_hyperband(options: dict[str, Any], n_rungs: int) -> None:
    """Set where hyperband ends, and check what it checks only when it prunes."""
    parts: tuple[str, ...] = ("min_resource", "reduction_factor")
    halving = {key: options[key] for key in parts if key in options}
    build(_PRUNER_OPTIONS, optuna.pruners.SuccessiveHalvingPruner, halving)
    # It ends where a trial ends: it would guess, and guess anew in each process.
    if options.get("max_resource", "auto") == "auto":
        options["max_resource"] = n_rungs
    if options["max_resource"] < options["min_resource"]:
        raise ConfigError(
            f"{_PRUNER_OPTIONS}.max_resource={options['max_resource']} is below min_resource="
            f"{options['min_resource']}; both are twentieths of a run."
        )
