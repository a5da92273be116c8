"""The one exception for a user's mistake: its text is all that the user is shown."""


class ConfigError(ValueError):
    """A value, the rule it breaks and the mend; shown without a traceback."""
