"""Hydra's door to the studies of rlzoo_plus."""
