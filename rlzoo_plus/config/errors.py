"""The errors that a user is shown, by the name most modules import them under."""

from rlzoo_plus.errors import RUN_ERROR, USER_ERROR, ConfigError, RunError

__all__ = ["RUN_ERROR", "USER_ERROR", "ConfigError", "RunError"]
