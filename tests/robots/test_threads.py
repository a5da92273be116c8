"""The number of threads that share a step of many worlds."""

import logging
import os

import pytest

from rlzoo_plus.sweeps.launchers.usage import cores as cores_of_jobs
from robots import cores, threads
from robots.cores import machine_cores, usable_cores
from robots.threads import THREADS, Threads, read_threads


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a function that sets cores and a quota, on a machine where no threads were chosen."""
    monkeypatch.setattr(threads, "_chosen", {})
    for name in (THREADS, cores.OWN):
        monkeypatch.delenv(name, raising=False)
    quota = tmp_path / "cpu.max"
    monkeypatch.setattr(cores, "_QUOTA", quota)

    def _machine(count, text=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)), raising=False)
        if text is not None:
            quota.write_text(text)

    return _machine


@pytest.fixture
def clock(monkeypatch):
    """Return a function that sets what a step takes, by its number of threads."""
    now = 0.0

    def _clock(costs):
        def step(count):
            nonlocal now
            now += costs[count]
            return count

        return step

    monkeypatch.setattr(threads.time, "perf_counter", lambda: now)
    return _clock


def settled(step, n_worlds=8, kind=1):
    chooser = Threads(n_worlds, kind)
    for _ in range(100):
        chooser.timed(step)
    return chooser.count


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({1: 10.0, 2: 6.0, 4: 3.0}, 4),
        ({1: 10.0, 2: 6.0, 4: 5.9}, 2),
        ({1: 10.0, 2: 9.5, 4: 12.0}, 1),
    ],
)
def test_the_fewest_that_are_about_as_fast_as_any_are_kept(machine, clock, costs, expected):
    machine(4)
    assert settled(clock(costs)) == expected


def test_the_choice_is_said_once_and_holds_for_worlds_of_the_kind(machine, clock, caplog):
    machine(2)
    with caplog.at_level(logging.DEBUG, "robots"):
        settled(clock({1: 0.002, 2: 0.001}))
        assert Threads(8, 1).timed(lambda count: count) == 2
    (record,) = caplog.records
    assert "threads for 8 worlds: 2 (ms a step with 1: 2.00, 2: 1.00)" in record.getMessage()


def test_never_more_than_worlds_or_cores(machine, clock):
    machine(16)
    tried = set()

    def step(count):
        tried.add(count)

    settled(step, n_worlds=3)
    assert tried == {1, 2, 3}
    assert Threads(1, 1).count == 1


def test_what_is_asked_for_is_not_timed(machine, monkeypatch):
    machine(1)
    monkeypatch.setenv(THREADS, "2")
    assert {Threads(4, 1).timed(lambda count: count) for _ in range(3)} == {2}
    assert Threads(1, 1).count == 1
    monkeypatch.setenv(THREADS, "auto")
    assert read_threads() is None


@pytest.mark.parametrize("text", ["two", "0", "-1", "1.5"])
def test_numbers_of_threads_are_checked(machine, monkeypatch, text):
    monkeypatch.setenv(THREADS, text)
    with pytest.raises(ValueError, match=f"ROBOTS_THREADS='{text}'"):
        read_threads()


def test_cores_are_those_of_the_affinity_the_quota_and_the_job(machine, monkeypatch):
    machine(8)
    assert usable_cores() == 8
    for text, expected in (("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1)):
        machine(8, text)
        assert usable_cores() == expected
    monkeypatch.setenv(cores.OWN, "1")
    machine(8, "max 100000")
    assert usable_cores() == 1
    # Jobs of a sweep have threads of their own.
    assert machine_cores() == cores_of_jobs() == 8
    machine(8, "300000 100000")
    assert machine_cores() == cores_of_jobs() == 3
