"""Stores of runs beyond this machine: a shared folder or S3, run leases and sync.

A request that fails is a `StoreError`, a mistake of the user's a `ConfigError`; it is not said each
time.
"""
