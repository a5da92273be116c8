"""What a sync does when things go wrong around it: it beats on, and nothing follows its end."""

import logging
import threading

import pytest

from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import (
    FINISHED,
    LARGEST_BYTES,
    RELEASED,
    RUNNING,
    RunLease,
    lease_name,
    list_leases,
    read_record,
)
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import RunSync

RUN = "sweep/a"


class Gated:
    """A store whose `put` waits for a gate."""

    def __init__(self, store):
        self._store = store
        self.gate, self.reached = threading.Event(), threading.Event()

    def __getattr__(self, name):
        return getattr(self._store, name)

    def put(self, name, data, check=None):
        self.reached.set()
        assert self.gate.wait(60)
        self._store.put(name, data, check)


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.yaml").write_text("seed: 1\n")
    return path


@pytest.fixture
def store(tmp_path):
    return open_store(tmp_path / "store")


def _sync(store, run, report=dict, **times):
    lease = RunLease(store, RUN, "worker")
    assert lease.claim(list_leases(store, "sweep"))
    times = {"beat_s": 0.01, "push_s": 3600.0, **times}
    sync = RunSync(store, lease, lambda check: RunMirror(store, RUN, run, check), report, **times)
    sync.start()
    return sync


def _record(store):
    return read_record(store.get(lease_name(RUN), LARGEST_BYTES)[0])


def test_a_late_beat_does_not_follow_the_end(store, run):
    entered, gate = threading.Event(), threading.Event()

    def report():
        if threading.current_thread().name == "beats":
            entered.set()
            assert gate.wait(60)
        return {"steps": 5}

    sync = _sync(store, run, report)
    assert entered.wait(60)
    assert sync.finish(FINISHED, 5.0) is None
    gate.set()
    sync._threads[0].join(60)
    assert _record(store)["state"] == FINISHED


def test_a_progress_that_cannot_be_read_stops_no_beat(store, run, caplog):
    beaten = threading.Event()

    def report():
        if "beat" in _record(store) and _record(store)["beat"] > 3:
            beaten.set()
        raise KeyError("steps")

    with caplog.at_level(logging.ERROR):
        sync = _sync(store, run, report)
        assert beaten.wait(60)
        assert sync.finish(FINISHED, 5.0) is None
    assert "progress of the run cannot be read" in caplog.text
    assert _record(store)["state"] == FINISHED


@pytest.mark.parametrize("value", [float("nan"), "x" * 2 * LARGEST_BYTES])
def test_no_progress_makes_a_record_unreadable(store, run, value):
    sync = _sync(store, run, lambda: {"evaluation": {"mean": value}})
    assert sync.finish(FINISHED, 5.0) is None
    assert _record(store).items() >= {"worker": "worker", "state": FINISHED}.items()


def test_without_time_nothing_more_is_sent_and_the_run_is_released(store, run):
    """What is there stays whole: the state of a run ends with its manifest."""
    sync = _sync(store, run)
    assert "no time left" in sync.finish(FINISHED, 60.0, 0.0)
    assert not [e for top in ("runs", "state") for e in store.list(f"{top}/{RUN}/")]
    assert _record(store)["state"] == RELEASED


def test_a_lease_is_not_given_back_while_a_push_is_on_its_way(store, run):
    gated = Gated(store)
    sync = _sync(gated, run)
    sync.push_soon()
    assert gated.reached.wait(60)
    assert "left to expire" in sync.finish(FINISHED, 0.2)
    assert _record(store)["state"] == RUNNING
    gated.gate.set()
    sync._threads[1].join(60)
    with pytest.raises(StoreError, match="given back"):
        sync._check()
