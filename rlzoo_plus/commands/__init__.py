"""One thin file for each verb of the command line.

A mistake of the user's is a `ConfigError` that names the value, the rule and the mend, wherever it
is found; it is not said each time.
"""
