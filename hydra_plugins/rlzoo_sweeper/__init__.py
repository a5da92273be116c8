"""Hydra sweeper of rlzoo_plus."""
