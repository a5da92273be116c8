"""Inspects an environment before training: what it is made of, and what random actions do."""
