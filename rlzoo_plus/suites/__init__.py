"""Benchmark suites: cells of algorithm and environment, trained over seeds, beside known scores."""
