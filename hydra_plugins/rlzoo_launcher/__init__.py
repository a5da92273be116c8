"""Hydra's door to the sweeps of rlzoo_plus."""
