"""Reading runs: statistics and learning curves. Nothing here trains."""
