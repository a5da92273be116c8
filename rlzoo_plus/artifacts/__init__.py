"""What a run leaves behind: its directory, records, checkpoints and bundles."""
