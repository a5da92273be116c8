"""Training one run: `ExpManager`, its callbacks, evaluation, exact resume."""
