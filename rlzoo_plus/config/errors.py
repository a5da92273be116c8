"""The exceptions whose text is all that a user is shown: a mistake, and a run that broke off."""


class ConfigError(ValueError):
    """A value, the rule it breaks and the mend; shown without a traceback."""


class RunError(RuntimeError):
    """Why a run had to end that was configured correctly; shown without a traceback.

    Everything that the run saved before stays, and it can be resumed.
    """
