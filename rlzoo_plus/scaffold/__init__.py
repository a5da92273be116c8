"""Writes an environment for a URDF: one Python file and one YAML file."""
