"""AWS: the project's stack, and the machines that workers run on. Floor: see pyproject.toml.

A mistake of the user's, and what AWS refuses, is a `ConfigError` that says what helps, wherever it
is found; it is not said each time.
"""
