"""Two thousand odd configurations: each trains, or is refused in one clear line."""

import pytest
from support.fuzz import Tally, play

from rlzoo_plus.agents import factory
from rlzoo_plus.envs import fit

DRAWS, PARTS = 2000, 20


@pytest.fixture
def small_machine(monkeypatch):
    """Let a machine of 1 GiB decide what is too large, whatever this one has."""
    for module in (fit, factory):
        monkeypatch.setattr(module, "total_memory_bytes", lambda: 2**30)


@pytest.mark.slow
@pytest.mark.usefixtures("small_machine", "in_process")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_odd_value_ends_in_a_traceback_or_leaves_half_a_run(part, tmp_path):
    tally = Tally()
    for number in range(part, DRAWS, PARTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        play(number, folder, tally)
    print(tally)
    assert tally.failures == [], "\n".join(tally.failures)
