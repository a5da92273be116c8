"""Reads the state of CMA-ES from a storage: a pickle, which is taken as data and never run.

Optuna keeps its optimizer as a pickle among the attributes of a trial, and a storage may be a
stranger's. The pickle is read symbolically; its class must be one of the package cmaes, and its
attributes must be numbers and arrays of the kinds and shapes that this class has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.export.pickled_arrays import array_of, is_scalar, state_of
from rlzoo_plus.export.symbolic_pickle import Call, Name, PickleError, read_symbolic

LARGEST_BYTES = 2**26
_PACKAGES = ("cmaes", "numpy")
_OPTIMIZERS = {"CMA": "cmaes._cma", "SepCMA": "cmaes._sepcma", "CMAwM": "cmaes._cmawm"}
_INNER = "_cma"
_MOST_DIMENSIONS, _LARGEST_POPULATION = 1000, 100_000
_MOST_GENERATIONS = 10**9
_GENERATION, _PLACES = "_g", ("_discrete_idx", "_continuous_idx")
# Room for values that are yet to come: what nobody has written there may be no number.
_ROOM = "_funhist_values"


def load_optimizer(data: bytes) -> Any:
    """Return an optimizer that Optuna has stored; nothing that the data names is run.

    The random numbers are not part of it: Optuna seeds them for each trial.

    Raises:
        ConfigError: The data holds anything but an optimizer, its numbers and its arrays.
    """
    try:
        if len(data) > LARGEST_BYTES:
            raise PickleError(f"it is larger than {LARGEST_BYTES // 2**20} MiB")
        return _optimizer(read_symbolic(data, _PACKAGES))
    except PickleError as error:
        raise ConfigError(
            "the study's storage holds no state of hpo.sampler=cmaes that can be taken: "
            f"{error}. Nothing in it was executed. "
            "Go on with hpo.sampler=tpe, or begin a new study with hpo.study=NAME."
        ) from None


def _optimizer(pickled: Any) -> Any:
    import cmaes

    name = _class_name(pickled)
    state = {key: _plain(name, key, part) for key, part in state_of(pickled, name).items()}
    _check(state, _likeness(name, state))
    optimizer_class = getattr(cmaes, name)
    optimizer = optimizer_class.__new__(optimizer_class)
    if hasattr(optimizer, "__setstate__"):
        # The package's own: it unfolds the covariances, and makes a generator.
        optimizer.__setstate__(state)
    else:
        vars(optimizer).update(state)
    return optimizer


def _class_name(pickled: Any) -> str:
    """Return which optimizer would have been built."""
    function = pickled.function if isinstance(pickled, Call) else None
    if not isinstance(function, Name) or _OPTIMIZERS.get(function.name) != function.module:
        raise PickleError("it is no optimizer of the package cmaes")
    return function.name


def _plain(owner: str, key: Any, value: Any) -> Any:
    """Return a number, an array or, as the core of another one, an optimizer."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    # No deeper: a stream can put an object into itself.
    if (owner, key) == ("CMAwM", _INNER) and _class_name(value) == "CMA":
        return _optimizer(value)
    array = array_of(value)
    return array[()] if is_scalar(value) else array


def _likeness(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of a new optimizer of the same size, to compare with.

    Raises:
        PickleError: There is no such optimizer.
    """
    import cmaes

    if name == "CMAwM":
        inner = state.get(_INNER)
        if not isinstance(inner, cmaes.CMA):
            raise PickleError("its core is no optimizer")
        size, population = inner.dim, inner.population_size
    else:
        size = _count(state.get("_n_dim"), _MOST_DIMENSIONS)
        population = _count(state.get("_popsize"), _LARGEST_POPULATION)
    bounds = np.tile([0.0, 1.0], (size, 1))
    options: dict[str, Any] = {
        "bounds": bounds,
        "population_size": population,
        "n_max_resampling": 10 * size,
    }
    if name == "CMAwM":
        options["steps"] = _steps(state.get("_discrete_idx"), size)
    try:
        with np.errstate(all="ignore"):
            made = getattr(cmaes, name)(mean=np.full(size, 0.5), sigma=0.1, **options)
    except (ValueError, AssertionError, ArithmeticError) as error:
        raise PickleError("there is no optimizer of its size") from error
    likeness: dict[str, Any] = made.__getstate__()
    return likeness


def _steps(discrete: Any, size: int) -> np.ndarray:
    is_index = (
        isinstance(discrete, np.ndarray) and discrete.ndim == 1 and discrete.dtype.kind == "i"
    )
    if not is_index or len(set(discrete.tolist())) != discrete.size:
        raise PickleError("it has no list of discrete dimensions")
    if discrete.size and not (discrete.min() >= 0 and discrete.max() < size):
        raise PickleError("it has discrete dimensions beyond its own")
    steps = np.zeros(size)
    steps[discrete] = 0.5
    return steps


def _count(value: Any, largest: int) -> int:
    if type(value) is not int or not 1 <= value <= largest:
        raise PickleError("its size is beyond all optimizers")
    return value


def _check(state: dict[str, Any], likeness: dict[str, Any]) -> None:
    """Compare attributes with those of an optimizer that was really made.

    Raises:
        PickleError: One is missing, too many, or of another kind or shape.
    """
    if set(state) != set(likeness):
        raise PickleError("its attributes are not those of the installed version of cmaes")
    for key, value in state.items():
        if not _fits(key, value, likeness[key]):
            raise PickleError(f"its attribute {key} is of another kind, shape or size")


def _fits(key: str, value: Any, like: Any) -> bool:
    if isinstance(like, np.ndarray):
        return _is_like_array(key, value, like)
    if isinstance(like, float):
        return isinstance(value, float) and math.isfinite(value)
    if key == _GENERATION:
        return type(value) is int and 0 <= value <= _MOST_GENERATIONS
    # Sizes go with the dimensions, and what is made when first needed is not kept.
    return type(value) is type(like) and (type(like) is not int or value == like)


def _is_like_array(key: str, value: Any, like: np.ndarray) -> bool:
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != (like.shape, like.dtype):
        return False
    if key in _PLACES:
        return bool((value == like).all())
    return key == _ROOM or bool(np.isfinite(value).all())
