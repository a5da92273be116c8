"""Exact resume: the whole state of a run, saved and restored bit for bit."""
