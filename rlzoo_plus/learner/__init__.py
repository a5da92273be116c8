"""Learner: one process acts, another learns from what it did, with SB3's own algorithms."""
