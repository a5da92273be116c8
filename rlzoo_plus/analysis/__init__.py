"""Reading runs: statistics and learning curves. Nothing here trains.

A mistake of the user's is a `ConfigError` that names the value, the rule and the mend, wherever it
is found; it is not said each time.
"""
