"""The samplers of a study: what draws the values of the next trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.samplers import BaseSampler, CmaEsSampler

from rlzoo_plus.artifacts.untrusted import one_line
from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.config.suggest import unknown_name
from rlzoo_plus.tuning.cma_state import load_optimizer
from rlzoo_plus.tuning.options import build, check_options
from rlzoo_plus.tuning.quiet import quiet_optuna

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, TrialState

Grid = Mapping[str, Sequence[Any]]

_CLASSES = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "cmaes": "CmaEsSampler",
    "gp": "GPSampler",
    "qmc": "QMCSampler",
    "nsga2": "NSGAIISampler",
    "grid": "GridSampler",
}
SAMPLERS = tuple(_CLASSES)
_ONE_OBJECTIVE = ("cmaes",)
# Their place in the sequence, or the order of the grid, goes with the seed.
_CONSTANT_SEED = ("qmc", "grid")
_NEEDS = {"cmaes": "cmaes", "gp": "scipy", "qmc": "scipy"}
_WHERE = "hpo.sampler_options"


class PlainCmaEsSampler(CmaEsSampler):
    """CMA-ES that takes up its state from the storage without running what a stranger put there."""

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Draw several values together.

        Raises:
            ConfigError: The storage holds something else than Optuna has written there.
        """
        try:
            return super().sample_relative(study, trial, search_space)
        except ConfigError:
            raise
        # Optuna trusts the attributes of trials, and stumbles over others.
        except (LookupError, TypeError, ValueError, AssertionError, ArithmeticError) as error:
            raise ConfigError(
                "hpo.sampler=cmaes cannot go on with what the study's storage holds: "
                f"{one_line(error)}. Go on with hpo.sampler=tpe, or begin a new study with "
                "hpo.study=NAME."
            ) from error

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        prefix = self._attr_key_optimizer
        for trial in reversed(completed_trials):
            parts = {k: v for k, v in trial.system_attrs.items() if k.startswith(prefix)}
            if parts:
                return load_optimizer(bytes.fromhex(self._concat_optimizer_attrs(parts)))
        return None


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
    if name not in _CLASSES:
        raise ConfigError(unknown_name("hpo.sampler", name, SAMPLERS))
    if len(hpo.objectives) > 1 and name in _ONE_OBJECTIVE:
        several = ", ".join(n for n in SAMPLERS if n not in _ONE_OBJECTIVE)
        raise ConfigError(f"hpo.sampler={name} knows one objective only; for several: {several}.")
    _require(name)
    target = PlainCmaEsSampler if name == "cmaes" else getattr(samplers, _CLASSES[name])
    options = check_options(_WHERE, target, hpo.sampler_options)
    seed = hpo.seed % 2**32 if name in _CONSTANT_SEED else trial_seed(hpo.seed, number)
    sampler: BaseSampler = build(
        _WHERE, target, {**_fixed(hpo, number, grid), **options, "seed": seed}
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
