"""Stores of runs beyond this machine: a shared folder or S3, run leases and sync."""
