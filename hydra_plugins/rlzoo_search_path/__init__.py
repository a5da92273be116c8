"""Hydra search path plugin of rlzoo_plus."""
