"""Algorithms whose library may be missing, for tests over all of them."""

from importlib.util import find_spec

import pytest

from rlzoo_plus.config.catalog import ALGORITHMS, get_algorithm

# Those that act in environments; the others learn from a dataset.
# Those that train in the worlds of one agent.
ACTING = [algo for algo, spec in ALGORITHMS.items() if not spec.clones and algo != "mappo"]
NEEDS_SBX = pytest.mark.skipif(find_spec("sbx") is None, reason="sbx is not installed")


def is_of_sbx(algo):
    return get_algorithm(algo).backend == "jax"


def needs(algo):
    """Return the marks of a test that reads or imports the library of an algorithm."""
    return [NEEDS_SBX] if is_of_sbx(algo) else []


def each(algos):
    """Return parameters for tests that read or import the library of each algorithm."""
    return [pytest.param(algo, marks=needs(algo)) for algo in algos]
