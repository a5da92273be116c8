"""AWS: the project's stack, and the machines that workers run on. Floor: see pyproject.toml."""
