"""Environments of pybullet-envs-gymnasium that are stepped many at once."""
