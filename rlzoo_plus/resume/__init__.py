"""Exact resume: what a run is made of at one moment, saved and put back bit for bit."""
