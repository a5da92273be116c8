"""What the leases of a store say: each record is requested once, and damaged ones end nothing."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from rlzoo_plus.store.cache import cache_of
from rlzoo_plus.store.contract import StoreError
from rlzoo_plus.store.lease import (
    CANCELLED,
    RELEASED,
    RUNNING,
    STOP,
    LeaseLostError,
    RunLease,
    ask,
    list_leases,
    reopen,
)
from rlzoo_plus.store.live import LiveRecords

RUN = "sweep/pendulum/ppo/a-s0"


@pytest.fixture
def gets(store, monkeypatch):
    """Count the requests for objects by name."""
    counts = Counter()
    get = store.get

    def counted(name, largest):
        counts[name] += 1
        return get(name, largest)

    monkeypatch.setattr(store, "get", counted)
    return counts


def _put(store, number, **record):
    store.put(f"live/sweep/pendulum/ppo/a-s{number}.json", json.dumps(record).encode())


def test_only_what_changed_is_requested_again_even_by_another_process(store, gets):
    for number in range(20):
        _put(store, number, state=RUNNING, steps=number)
    live = LiveRecords(store, "sweep")
    assert live.read()["sweep/pendulum/ppo/a-s7"].record["steps"] == 7
    assert sum(gets.values()) == 20
    _put(store, 7, state=RUNNING, steps=70)
    assert live.read()["sweep/pendulum/ppo/a-s7"].record["steps"] == 70
    assert sum(gets.values()) == 21
    other = LiveRecords(store, "sweep").read()
    assert sorted(other) == sorted(f"sweep/pendulum/ppo/a-s{number}" for number in range(20))
    # All of a store begins with what is known of its sweeps.
    assert LiveRecords(store).read().keys() == other.keys()
    assert sum(gets.values()) == 21


def test_other_sweeps_and_probes_are_left_out(store):
    _put(store, 0, state=RUNNING)
    store.put("live/sweep2/pendulum/ppo/a-s0.json", b"{}")
    store.put("live/probes/me", b"first")
    assert list(LiveRecords(store, "sweep").read()) == [RUN]
    assert sorted(LiveRecords(store).read()) == [RUN, "sweep2/pendulum/ppo/a-s0"]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"null", b"[1]", b'"x"', b"\xff", b'{"state": NaN}', b'{"a": 1, "a": 2}'),
        *(b"{" * 9999, b"1" * 9999, b'{"a": ' * 200 + b"1" + b"}" * 200),
        b'{"state": "' + b"x" * 2**17 + b'"}',
    ],
)
def test_a_damaged_record_is_an_empty_one(store, data):
    store.put(f"live/{RUN}.json", data)
    (found,) = LiveRecords(store, "sweep").read().values()
    assert (found.record, found.state, found.is_trained) == ({}, "", False)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"a": 1}', b"\xff", b"[" * 9999])
def test_a_damaged_cache_is_read_from_the_store(store, data):
    _put(store, 0, state=RELEASED)
    LiveRecords(store, "sweep").read()
    (file,) = (cache_of(store.url) / "live").iterdir()
    file.write_bytes(data)
    assert LiveRecords(store, "sweep").read()[RUN].state == RELEASED


def test_a_server_that_gives_no_tags_is_read_all_the_same(store, monkeypatch):
    _put(store, 0, state=RELEASED)
    listed = [replace(entry, tag="") for entry in store.list("live/sweep/")]
    monkeypatch.setattr(store, "list", lambda prefix: iter(listed))
    assert LiveRecords(store, "sweep").read()[RUN].state == RELEASED


def test_evaluations_are_for_those_who_steer_runs(store, tmp_path):
    _put(store, 0, state=RUNNING, evaluations=[{"step": 1}])
    assert "evaluations" not in LiveRecords(store, "sweep").read()[RUN].record
    steering = LiveRecords(store, "sweep", on_disk=False).read()
    assert steering[RUN].record["evaluations"] == [{"step": 1}]


def test_requests_that_fail_at_times_are_made_again(store, monkeypatch):
    for number in range(40):
        _put(store, number, state=RUNNING)
    get, draw = store.get, random.Random(0).random

    def flaky(name, largest):
        if draw() < 0.3:
            raise StoreError("busy")
        return get(name, largest)

    monkeypatch.setattr(store, "get", flaky)
    assert len(LiveRecords(store, "sweep").read()) == 40


def test_a_store_that_is_gone_is_asked_a_few_times_only(store, monkeypatch):
    for number in range(300):
        _put(store, number, state=RUNNING)
    calls = Counter()

    def gone(name, largest):
        calls[name] += 1
        raise StoreError("gone")

    monkeypatch.setattr(store, "get", gone)
    with pytest.raises(StoreError, match="gone"):
        LiveRecords(store, "sweep").read()
    assert sum(calls.values()) < 150


def _tag(store):
    return list_leases(store, "sweep")[f"live/{RUN}.json"].tag


def _claimed(store, name="one", **more):
    lease = RunLease(store, RUN, name)
    return lease if lease.claim(list_leases(store, "sweep"), **more) else None


def test_a_run_whose_worker_is_gone_is_cancelled_at_once(store):
    frozen = _claimed(store)
    assert ask(store, RUN, STOP, "enough", gone=_tag(store)) == CANCELLED
    assert _claimed(store, "two", expires_s=0.0) is None
    # The worker was only frozen: it finds out.
    with pytest.raises(LeaseLostError, match="it was ended"):
        frozen.beat(RUNNING)
    assert _claimed(store, "two", expires_s=0.0) is None


def test_a_worker_that_has_beaten_since_is_asked(store):
    lease, before = _claimed(store), _tag(store)
    lease.beat(RUNNING, steps=5)
    assert ask(store, RUN, STOP, "enough", gone=before) == RUNNING


def test_a_run_whose_worker_died_before_it_could_obey_goes_on_when_it_is_opened_again(store):
    _claimed(store)
    assert ask(store, RUN, STOP, "enough") == RUNNING
    assert not reopen(store, RUN, (CANCELLED,))
    assert reopen(store, RUN, (CANCELLED,), gone=_tag(store))
    assert _claimed(store, "two").request is None
