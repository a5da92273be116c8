"""Reading runs: statistics, learning curves, films. Nothing here trains."""
