"""The pruners of a study: what decides that a trial is not worth going on with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.hpo import HpoConfig
from rlzoo_plus.config.suggest import unknown_name
from rlzoo_plus.tuning.options import build, check_options, option_types

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

_CLASSES = {
    "median": "MedianPruner",
    "percentile": "PercentilePruner",
    "hyperband": "HyperbandPruner",
    "halving": "SuccessiveHalvingPruner",
    "patient": "PatientPruner",
    "none": "NopPruner",
}
PRUNERS = tuple(_CLASSES)
_WHERE = "hpo.pruner_options"
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

    if hpo.pruner not in _CLASSES:
        raise ConfigError(unknown_name("hpo.pruner", hpo.pruner, PRUNERS))
    if hpo.pruner == "none":
        # Whatever options stand in a file are those of the pruner that was put aside.
        return pruners.NopPruner()
    target = getattr(pruners, _CLASSES[hpo.pruner])
    if hpo.pruner == "patient":
        options = _patient(hpo)
    else:
        options = _DEFAULTS.get(hpo.pruner, {}) | check_options(_WHERE, target, hpo.pruner_options)
    _check_ranges(options)
    if hpo.pruner == "hyperband":
        _limit(options, n_rungs)
    pruner: BasePruner = build(_WHERE, target, options)
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
            raise ConfigError(f"{_WHERE}: {unknown_name('option', str(name), known)}")
    for_median = {key: value for key, value in hpo.pruner_options.items() if key not in own}
    for_itself = {key: value for key, value in hpo.pruner_options.items() if key in own}
    median = check_options(_WHERE, MedianPruner, for_median)
    _check_ranges(median)
    options = _DEFAULTS["patient"] | check_options(_WHERE, PatientPruner, for_itself)
    return {"wrapped_pruner": build(_WHERE, MedianPruner, median), **options}


def _limit(options: dict[str, Any], n_rungs: int) -> None:
    """Let hyperband end where a trial ends: it would guess, and guess anew in each process."""
    if options.get("max_resource", "auto") == "auto":
        options["max_resource"] = n_rungs
    if options["max_resource"] < options["min_resource"]:
        raise ConfigError(
            f"{_WHERE}.max_resource={options['max_resource']} is below min_resource="
            f"{options['min_resource']}; both are twentieths of a run."
        )


def _check_ranges(options: Mapping[str, Any]) -> None:
    for name, value in options.items():
        lowest = _LOWEST.get(name)
        if lowest is not None and isinstance(value, (int, float)) and value < lowest:
            raise ConfigError(f"{_WHERE}.{name}={value} must be at least {lowest}.")
