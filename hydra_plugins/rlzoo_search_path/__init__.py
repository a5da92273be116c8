"""Hydra's door to the configuration directories of a user of rlzoo_plus."""
