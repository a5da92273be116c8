"""Running a training in pieces, as if it had been stopped again and again."""

from pathlib import Path

import pytest
from support.training import start_run, train_run

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.config.schema import RunConfig
from rlzoo_plus.doctor.digests import run_digests
from rlzoo_plus.training.callbacks import StopRequest


class StopAfter(StopRequest):
    """Asks to stop at the beginning of the n-th iteration of a process; one is no progress."""

    def __init__(self, n_iterations: int) -> None:
        super().__init__()
        self._left = n_iterations

    def look(self):
        """Return the signal that asked to stop, at each look for one."""
        return 15 if self._left <= 0 else None

    def begin_iteration(self):
        """Count; whether a checkpoint is asked for is looked at once an iteration."""
        self._left -= 1

    signal_number = property(lambda self: self.look(), lambda self, number: None)
    checkpoint = property(lambda self: self.begin_iteration(), lambda self, wanted: None)


class KillAfter(StopAfter):
    """Ends a process at the beginning of the n-th iteration, with nothing saved there."""

    def look(self):
        if self._left <= 0:
            raise KeyboardInterrupt


def train_with_a_kill(path: Path, config: RunConfig, *n_iterations: int):
    """Train, killed after so many iterations of each process; return the run and its result."""
    from rlzoo_plus.training.exp_manager import ExpManager

    run_dir = start_run(path, config)
    for count in n_iterations:
        with pytest.raises(KeyboardInterrupt):
            ExpManager(config, run_dir, KillAfter(count)).train()
    return run_dir, ExpManager(config, run_dir).train()


def train_in_pieces(path: Path, config: RunConfig, n_iterations: int = 2):
    """Train, stopping after so many iterations each time; return run, result and the stops."""
    from rlzoo_plus.training.exp_manager import ExpManager

    run_dir = start_run(path, config)
    for stops in range(500):
        result = ExpManager(config, run_dir, StopAfter(n_iterations)).train()
        if result.state == "finished":
            return run_dir, result, stops
    raise AssertionError("the run makes no progress")


def assert_same_in_pieces(path: Path, config: RunConfig, n_iterations: int = 2) -> RunDir:
    """Train whole and in pieces, and compare everything bit for bit; return the second run."""
    whole, _ = train_run(path / "whole", config)
    pieces, result, stops = train_in_pieces(path / "pieces", config, n_iterations)
    assert stops >= 2
    assert result.exact, result.inexact_because
    assert len(result.resumed_at) == stops
    expected, found = run_digests(whole), run_digests(pieces)
    differing = sorted(k for k in expected | found if expected.get(k) != found.get(k))
    assert not differing, differing
    return pieces
