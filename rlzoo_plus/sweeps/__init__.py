"""Many runs from one command: their names, their ledger, their controller, their summary.

A mistake of the user's is a `ConfigError` that names the value, the rule and the mend, wherever it
is found; it is not said each time.
"""
