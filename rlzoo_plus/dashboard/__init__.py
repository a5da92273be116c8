"""A page in the browser that shows runs: table, curves, progress, videos, configurations."""
