"""The dashboard: runs and sweeps in the browser."""
