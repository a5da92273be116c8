"""Proof by trial that a run can be killed and resumed: train twice, compare everything."""
