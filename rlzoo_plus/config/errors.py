"""The errors whose text is all that a user is shown, and the exit codes of commands and jobs."""

# A mistake of the user's, and a run that broke off.
USER_ERROR, RUN_ERROR = 2, 1


class ConfigError(ValueError):
    """A value, the rule it breaks and the mend; shown without a traceback."""


class RunError(RuntimeError):
    """Why a run had to end that was configured correctly; shown without a traceback.

    Everything that the run saved before stays, and it can be resumed.
    """
