"""Hydra launcher of rlzoo_plus."""
