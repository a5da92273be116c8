"""What attempts cost is carried from one worker to the next, whatever happens in between."""

import json
import math

import pytest

from rlzoo_plus.store import attempts
from rlzoo_plus.store.attempts import Account, Machine, dollars, read_attempts
from rlzoo_plus.store.lease import (
    CANCELLED,
    FINISHED,
    LARGEST_BYTES,
    RELEASED,
    STOP,
    RunLease,
    ask,
    list_leases,
    read_record,
    reopen,
)

RUN = "sweep/a"
# $0.001 a second.
DEAR = 3.6


@pytest.fixture
def store(folder):
    return folder


@pytest.fixture
def pass_s(monkeypatch):
    """Return a function that lets seconds pass for accounts."""
    now = [1000.0]
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now[0])

    def pass_them(seconds):
        now[0] += seconds

    return pass_them


def _lease(store, worker, max_usd=None, processor="A", price=DEAR, **more):
    account = Account(worker, Machine("c7a.large", processor, price), max_usd)
    lease = RunLease(store, RUN, worker, account)
    return lease if lease.claim(list_leases(store, "sweep"), **more) else None


def _record(store):
    return read_record(store.get("live/sweep/a.json", LARGEST_BYTES)[0])


def _train(lease, step, pass_s, seconds, state=None):
    lease.account.step = step
    pass_s(seconds)
    lease.beat(*([state] if state else []))


def test_each_attempt_is_told_with_machine_time_and_price(store, pass_s):
    _train(_lease(store, "one"), 0, pass_s, 10, RELEASED)
    _train(_lease(store, "two", processor="B"), 512, pass_s, 20)
    record = _record(store)
    assert record["attempts"] == [
        {
            "worker": "one",
            "machine": "c7a.large",
            "processor": "A",
            "step": 0,
            "seconds": 10.0,
            "usd": 0.01,
            "end": "released",
        },
        {
            "worker": "two",
            "machine": "c7a.large",
            "processor": "B",
            "step": 512,
            "seconds": 20.0,
            "usd": 0.02,
            "end": None,
        },
    ]
    assert record["spent"] == {
        "attempts": 2,
        "seconds": 30.0,
        "usd": 0.03,
        "processors": ["A", "B"],
    }


def test_the_time_of_a_killed_worker_counts_up_to_its_last_beat(store, pass_s):
    _train(_lease(store, "killed"), 0, pass_s, 10)
    pass_s(100)
    _train(_lease(store, "next", expires_s=0.0), 256, pass_s, 5)
    record = _record(store)
    assert [(a["worker"], a["seconds"], a["end"]) for a in record["attempts"]] == [
        ("killed", 10.0, "lost"),
        ("next", 5.0, None),
    ]
    assert record["spent"]["usd"] == 0.015


def test_a_request_an_end_and_a_reopening_keep_what_was_spent(store, pass_s):
    lease = _lease(store, "one")
    _train(lease, 0, pass_s, 10)
    ask(store, RUN, STOP, "enough")
    _train(lease, 0, pass_s, 5, RELEASED)
    assert _record(store)["state"] == CANCELLED
    assert _record(store)["attempts"][0]["end"] == CANCELLED
    assert reopen(store, RUN)
    _train(_lease(store, "two"), 64, pass_s, 5, FINISHED)
    assert _record(store)["spent"].items() >= {"attempts": 2, "seconds": 20.0, "usd": 0.02}.items()


def test_a_record_that_is_too_long_is_cut_but_not_what_was_spent(store, pass_s):
    lease = _lease(store, "one")
    lease.account.step = 0
    pass_s(10)
    lease.beat(evaluations=["x" * LARGEST_BYTES])
    assert "evaluations" not in _record(store)
    assert _record(store)["spent"]["seconds"] == 10.0


def test_one_who_knows_no_machine_carries_on_what_was_there(store, pass_s):
    _train(_lease(store, "one"), 0, pass_s, 10, RELEASED)
    before = _record(store)
    plain = RunLease(store, RUN, "push")
    assert plain.claim(list_leases(store, "sweep"))
    plain.beat(FINISHED)
    assert {k: _record(store)[k] for k in ("attempts", "spent")} == {
        k: before[k] for k in ("attempts", "spent")
    }


def test_an_attempt_that_did_not_train_is_no_attempt_but_costs(store, pass_s):
    _train(_lease(store, "one", processor="other"), None, pass_s, 10, RELEASED)
    _train(_lease(store, "two"), 0, pass_s, 10)
    assert [a["worker"] for a in _record(store)["attempts"]] == ["two"]
    assert _record(store)["spent"] == {
        "attempts": 1,
        "seconds": 20.0,
        "usd": 0.02,
        "processors": ["A"],
    }


def test_a_claim_whose_answer_was_lost_is_counted_once(store, pass_s):
    _lease(store, "one")
    pass_s(10)
    _train(_lease(store, "one"), 0, pass_s, 5)
    assert [a["worker"] for a in _record(store)["attempts"]] == ["one"]
    assert _record(store)["spent"]["attempts"] == 1


def test_sixteen_attempts_are_kept_and_all_are_summed(store, pass_s):
    for number in range(20):
        _train(_lease(store, f"w{number}"), number, pass_s, 1, RELEASED)
    record = _record(store)
    assert [a["worker"] for a in record["attempts"]] == [f"w{n}" for n in range(4, 20)]
    assert (record["spent"]["attempts"], record["spent"]["seconds"]) == (20, 20.0)


def test_without_a_price_time_is_told_and_no_money(store, pass_s):
    _train(_lease(store, "one", price=None, max_usd=0.01), 0, pass_s, 1e6, RELEASED)
    assert _record(store)["spent"].items() >= {"seconds": 1e6, "usd": None}.items()
    assert _lease(store, "two", price=None, max_usd=0.01)


# Shares.


def test_a_share_ends_in_three_steps(pass_s):
    account = Account("one", Machine(usd_per_hour=DEAR), max_usd=1.0)
    found = []
    for _ in range(1000):
        pass_s(1)
        found.append((account.must_stop, account.must_kill))
    left_s = [1000 - found.index(state) for state in ((True, False), (True, True))]
    assert left_s == pytest.approx([attempts.STOP_S, attempts.KILL_S], abs=1.0)


def test_of_a_small_share_most_is_trained(pass_s):
    account = Account("one", Machine(usd_per_hour=DEAR), max_usd=0.01)
    assert account.left_s == pytest.approx(10.0)
    pass_s(7)
    assert not account.must_stop
    pass_s(1)
    assert account.must_stop


@pytest.mark.parametrize(
    ("machine", "share"), [(None, 1.0), (Machine(), 1.0), (Machine("x"), None)]
)
def test_nothing_ends_without_price_or_share(pass_s, machine, share):
    account = Account("one", machine, share)
    pass_s(1e9)
    assert account.left_s == math.inf
    assert not account.must_stop


def test_a_run_whose_share_is_spent_is_cancelled_and_not_taken(store, pass_s):
    _train(_lease(store, "one", max_usd=0.1), 0, pass_s, 99, RELEASED)
    before = _record(store)["spent"]
    assert _lease(store, "two", max_usd=0.1) is None
    record = _record(store)
    assert (record["state"], record["spent"]) == (CANCELLED, before)
    assert record["reason"] == "budget: $0.0990 of $0.1000 are spent"
    assert reopen(store, RUN)
    assert _lease(store, "three", max_usd=0.2)


def test_amounts_are_cut():
    assert [dollars(usd) for usd in (0.02499, 0.025, 12.3, 0.0)] == [
        "$0.0249",
        "$0.0250",
        "$12.3000",
        "$0.0000",
    ]


# Records that somebody forged.

_WRONG = [None, "x", -1, math.nan, 1e300, True, [], {"a": 1}]


@pytest.mark.parametrize("wrong", [*_WRONG, [{}] * 3, ["x"], [None]])
def test_a_forged_record_is_carried_on_in_bounds(store, pass_s, wrong):
    names = ("worker", "machine", "processor", "step", "seconds", "usd", "end")
    forged = [
        {"attempts": wrong, "spent": wrong},
        {"attempts": [dict.fromkeys(names, wrong)], "spent": dict.fromkeys(names, wrong)},
        {"spent": {"attempts": wrong, "seconds": wrong, "usd": wrong, "processors": wrong}},
        {"spent": {"processors": [wrong] * 40}},
    ]
    for record in forged:
        store.put("live/sweep/a.json", json.dumps(record).encode())
        _train(_lease(store, "one", expires_s=0.0), 0, pass_s, 1)
        found, spent = read_attempts(_record(store))
        assert found[-1].worker == "one"
        assert 1.0 <= spent.seconds <= 1e9
        assert 0.0 < spent.usd <= 1e7
        assert len(spent.processors) <= 16


def test_texts_of_a_record_are_short_and_printable():
    row = {"worker": "\x1b[2J" * 1000, "processor": "🦾" * 1000, "machine": "a\nb", "end": "\x07"}
    listed, spent = read_attempts({"attempts": [row] * 1000, "spent": {"processors": ["\x1b"]}})
    assert len(json.dumps([vars(a) for a in listed])) < 8000
    texts = [t for a in listed for t in vars(a).values() if isinstance(t, str)]
    assert all(text.isascii() and text.isprintable() for text in (*texts, *spent.processors))


def test_sums_are_never_less_than_their_parts():
    row = {"seconds": 10, "usd": 0.5, "step": 1}
    _, spent = read_attempts({"attempts": [row, row], "spent": {"attempts": 0, "usd": 0}})
    assert (spent.attempts, spent.seconds, spent.usd) == (2, 20.0, 1.0)
