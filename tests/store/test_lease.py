"""A lease says who trains a run; a worker that was presumed dead is fenced off."""

import json
import random
import threading

import pytest
from support.stores import fail_requests

from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import (
    CANCELLED,
    FAILED,
    FINISHED,
    KILL,
    LARGEST_BYTES,
    RELEASED,
    STOP,
    LeaseLostError,
    RunLease,
    ask,
    list_leases,
    read_record,
    reopen,
)

RUN = "sweep/a"


def _claim(store, worker, run=RUN, **options):
    lease = RunLease(store, run, worker)
    return lease if lease.claim(list_leases(store, "sweep"), **options) else None


def test_a_run_has_one_worker(store):
    assert _claim(store, "first")
    assert _claim(store, "second") is None


def test_a_beat_carries_progress(store):
    lease = _claim(store, "first")
    lease.beat(step=4096, rate=310.5)
    record = json.loads(store.get("live/sweep/a.json", LARGEST_BYTES)[0])
    assert record.items() >= {"worker": "first", "state": "running", "step": 4096}.items()


@pytest.mark.parametrize("state", [FINISHED, FAILED])
def test_a_run_that_ended_is_not_taken_again(store, state):
    _claim(store, "first").beat(state)
    assert _claim(store, "second", expires_s=0.0) is None


def test_a_released_run_is_taken_at_once(store):
    _claim(store, "first").beat(RELEASED, step=100)
    assert _claim(store, "second")


def test_a_frozen_worker_is_fenced(store):
    frozen = _claim(store, "frozen")
    taker = _claim(store, "taker", expires_s=0.0)
    assert taker
    with pytest.raises(LeaseLostError, match="another worker"):
        frozen.beat(step=1)
    taker.beat(step=2)
    assert read_record(store.get("live/sweep/a.json", LARGEST_BYTES)[0])["worker"] == "taker"


def test_of_two_who_saw_an_expired_lease_one_takes_it(store):
    _claim(store, "dead")
    seen = list_leases(store, "sweep")
    claims = [RunLease(store, RUN, worker).claim(seen, expires_s=0.0) for worker in "ab"]
    assert claims == [True, False]


def test_a_damaged_lease_can_be_taken(store):
    store.put("live/sweep/a.json", b"\xff{]")
    assert _claim(store, "first", expires_s=0.0)


def test_workers_share_runs_while_requests_fail(s3):
    took = []

    def work(number):
        store, worker = open_store(s3.url), f"w{number}"
        fail_requests(store, 0.3, seed=number)
        runs = [f"sweep/r{run}" for run in range(12)]
        random.Random(number).shuffle(runs)
        for run in runs:
            lease = RunLease(store, run, worker)
            if _again(lambda lease=lease: lease.claim(_again(list_leases, store, "sweep"))):
                took.append(run)
                _again(lambda lease=lease: lease.beat(step=1))
                _again(lambda lease=lease: lease.beat(FINISHED))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(took) == sorted(f"sweep/r{run}" for run in range(12))


def _again(call, *args):
    for _ in range(50):
        try:
            return call(*args)
        except StoreError:
            continue
    raise AssertionError("each of 50 requests failed")


def _state(store):
    return read_record(store.get("live/sweep/a.json", LARGEST_BYTES)[0])


def test_a_worker_learns_at_its_next_beat_what_is_asked_of_it(store):
    lease = _claim(store, "first")
    assert ask(store, RUN, STOP, "cancelled by the user") == "running"
    lease.beat(step=1)
    assert lease.request == {"ask": STOP, "reason": "cancelled by the user"}
    # It stays until the worker has obeyed.
    assert _state(store)["request"] == lease.request
    lease.beat(CANCELLED, reason="cancelled by the user")
    assert "request" not in _state(store)


@pytest.mark.parametrize("before", [None, RELEASED])
def test_a_run_without_worker_is_cancelled_at_once(store, before):
    if before is not None:
        _claim(store, "first").beat(before)
    assert ask(store, RUN, STOP, "no longer needed") == CANCELLED
    assert _claim(store, "second", expires_s=0.0) is None
    assert _state(store)["reason"] == "no longer needed"


@pytest.mark.parametrize("state", [FINISHED, FAILED])
def test_nothing_is_asked_of_a_run_that_ended(store, state):
    _claim(store, "first").beat(state)
    assert ask(store, RUN, KILL, "x") == state
    assert _state(store)["state"] == state


def test_a_worker_that_died_before_it_obeyed_leaves_a_cancelled_run(store):
    _claim(store, "dead")
    ask(store, RUN, STOP, "cancelled")
    assert _claim(store, "second", expires_s=0.0) is None
    assert _state(store)["state"] == CANCELLED


def test_a_run_can_be_opened_again(store):
    assert reopen(store, RUN) is False
    _claim(store, "first").beat(FAILED, reason="nan")
    assert reopen(store, RUN, [CANCELLED]) is False
    assert reopen(store, RUN) is True
    assert _claim(store, "second")
    assert reopen(store, RUN) is False
