"""Environments that run in another Python interpreter, with other versions of libraries."""
