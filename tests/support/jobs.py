"""Functions that jobs run in tests of our own launchers and controller."""

import os

from rlzoo_plus.testing.jobs import fail, finish


def threads(data):
    print(os.environ["OMP_NUM_THREADS"])
    return 0


def fail_seed_1(data):
    return fail(data) if data["config"]["seed"] == 1 else finish(data)
