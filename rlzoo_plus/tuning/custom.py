"""A user's own space in Python: `hpo.custom=my_module.my_space`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlzoo_plus.config.errors import ConfigError
from rlzoo_plus.config.imports import import_user_module
from rlzoo_plus.tuning.texts import value_text

if TYPE_CHECKING:
    import optuna

_KEY = re.compile(r"[A-Za-z_][\w/@]*(\.\w+)*")
_SHAPE = "It must return a mapping of keys to values, e.g. {'algo.hyperparams.gamma': 0.98}"


def load_custom(path: str) -> Callable[[Any], Any]:
    """Return the function that `hpo.custom` names.

    Raises:
        ConfigError: There is none.
    """
    module, _, name = path.rpartition(".")
    if not module:
        raise ConfigError(f"hpo.custom={path}: must be module.function, e.g. my_module.my_space.")
    loaded = import_user_module(f"hpo.custom={path}", module)
    function = getattr(loaded, name, None)
    if not callable(function):
        raise ConfigError(f"hpo.custom={path}: {module} has no function {name}.")
    return function  # type: ignore[no-any-return]


def draw_custom(path: str, trial: optuna.Trial | optuna.trial.FixedTrial) -> dict[str, Any]:
    """Ask the user's function for values; return them by key.

    Raises:
        ConfigError: It fails, or gives what no configuration can hold.
    """
    try:
        drawn = load_custom(path)(trial)
    except ConfigError:
        raise
    except Exception as error:
        from optuna import TrialPruned

        if isinstance(error, TrialPruned):
            raise
        raise ConfigError(f"hpo.custom={path}: {type(error).__name__}: {error}") from error
    if not isinstance(drawn, Mapping):
        raise ConfigError(f"hpo.custom={path} returned {type(drawn).__name__}. {_SHAPE}.")
    for key, value in drawn.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ConfigError(f"hpo.custom={path} returned the key {key!r}. {_SHAPE}.")
        try:
            value_text(value)
        except ValueError as error:
            raise ConfigError(f"hpo.custom={path} returned {key}: {error}.") from None
    return dict(drawn)
