"""Optuna, imported here alone: without it a user reads how to install it, with it nothing it logs.

Modules that import this one are imported when a study is opened, and by no light module.

What is used of Optuna that it does not document, with the test that notices a change:

- `samplers.PlainCmaEsSampler` replaces `_restore_optimizer`, `_init_optimizer` and
  `_get_solution_trials`, and reads `_cma_rng`, `_with_margin` and the attribute `x_for_tell`:
  test_cma_draws_what_optunas_own_draws_and_stores_no_pickle.
- `samplers.OrderedQmcSampler` replaces `_find_sample_id`, and a grid and CMA-ES read the number of
  the trial that they are given: test_a_killed_study_draws_what_it_would_have_drawn.
- `trial_lease` writes the attributes `constraints:...` and `fixed_params`, as `Trial` and
  `enqueue_trial` do: test_what_was_told_is_read_back, test_a_trial_that_was_half_drawn_keeps_what_
  was_drawn.
- `optuna.trial.Trial(study, id)` in `study` and `trial_reporter`: test_asking_and_telling.py.
- Records of a journal are known by their `op_code` in `storage`: test_foreign_studies.py.
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
