"""Signals that ask to end cleanly: who gets them, and that of a closed terminal."""

import os
import signal

import pytest

from rlzoo_plus.processes import stop_signals_go_to


@pytest.fixture(autouse=True)
def hangup_as_usual():
    """Start from the default, however the tests were started, and go back to it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_handler_gets_the_signal_and_gives_it_back(number):
    seen, before = [], signal.getsignal(number)
    with stop_signals_go_to(lambda number, _: seen.append(number)):
        os.kill(os.getpid(), number)
    assert seen == [number]
    assert signal.getsignal(number) is before


def test_a_hangup_that_is_ignored_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    seen = []
    with stop_signals_go_to(lambda number, _: seen.append(number)):
        os.kill(os.getpid(), signal.SIGHUP)
    assert seen == []
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_a_second_hangup_counts_for_nothing():
    seen = []
    with stop_signals_go_to(lambda number, _: seen.append(number)):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGHUP)
    assert seen == [signal.SIGHUP]
