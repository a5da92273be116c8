"""The files of a run: its directory, records, checkpoints and bundles."""
