"""Checks before a run, and a probe; exact resume verified; new robots; environments inspected."""
