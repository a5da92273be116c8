"""Optuna, imported here alone: without it a user reads how to install it, with it nothing it logs.

Modules that import this one are imported when a study is opened, and by no light module.
"""

import warnings

from rlzoo_plus.errors import ConfigError


class MissingOptunaError(ConfigError, ImportError):
    """Optuna is not installed; as an ImportError, a fork server may do without it."""


try:
    import optuna
    import sqlalchemy
    from optuna.storages.journal import BaseJournalBackend
    from optuna.trial import FrozenTrial
    from optuna.trial import TrialState as OptunaState
except ImportError as error:
    raise MissingOptunaError(
        f"a study needs Optuna ({error}): pip install 'rlzoo-plus[tune]'"
    ) from None

__all__ = ["BaseJournalBackend", "FrozenTrial", "OptunaState", "optuna", "sqlalchemy"]


def silence_optuna() -> None:
    """Turn off Optuna's progress lines and its warnings for developers."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # We send the heartbeats: other processes do the work than the one that asks for trials.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")


silence_optuna()
