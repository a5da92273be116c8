"""Silences what Optuna says to developers; a study reports for itself."""

from __future__ import annotations

import warnings


def quiet_optuna() -> None:
    """Turn off Optuna's progress lines and its warnings about experimental arguments."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # Heartbeats are ours to send: the work is done by other processes than the one that asks.
    warnings.filterwarnings("ignore", message="Heartbeat of storage is supposed to be used with")
