"""Checks the arguments that a user gives to one of Optuna's classes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.signatures import fit_type
from rlzoo_plus.config.suggest import unknown_name

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
