"""Did-you-mean, by the name most modules import it under."""

from rlzoo_plus.errors import FEW, HELP, NEAREST, closest, unknown_name

__all__ = ["FEW", "HELP", "NEAREST", "closest", "unknown_name"]
