"""Beats and pushes beside a training: what they carry, when they stop, who sends, how they end."""

import contextlib
import json
import logging
import threading
import time

import pytest
from support.processes import wait_for
from support.stores import ignore_conditions, store_of

from rlzoo_plus.artifacts.run_dir import FINISHED, INTERRUPTED, RunDir
from rlzoo_plus.runs.store_sender import Sender
from rlzoo_plus.store.contract import StoreError
from rlzoo_plus.store.lease import (
    LARGEST_BYTES,
    RELEASED,
    RUNNING,
    STOP,
    LeaseLostError,
    RunLease,
    ask,
    list_leases,
)
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import RunSync

RUN = "sweep/a"
OFTEN = {"beat_s": 0.02, "push_s": 0.02}


@pytest.fixture
def run(tmp_path):
    """Return a run directory with a few files."""
    made = RunDir(tmp_path / "outputs/sweep/a")
    made.path.mkdir(parents=True)
    made.start({"seed": 0}, "train", {})
    made.write_status(FINISHED, message="all steps taken")
    return made


class Failing:
    """A store of which some requests fail, for as long as it is told to."""

    def __init__(self, store):
        self.store, self.failing = store, ()

    def __getattr__(self, name):
        if name in self.failing:
            raise StoreError("gone")
        return getattr(self.store, name)


ALL = ("put", "put_if_absent", "put_if_unchanged", "get", "list")
BEATS = ("put_if_unchanged", "get")


def _endless(store, run, report=dict, **times):
    lease = RunLease(store, RUN, "worker")
    assert lease.claim(list_leases(store, "sweep"))
    times = {"beat_s": 0.01, "push_s": 3600.0, **times}
    sync = RunSync(
        store, lease, lambda check: RunMirror(store, RUN, run.path, check), report, **times
    )
    sync.start()
    return sync


@contextlib.contextmanager
def _synced(store, run, report=dict, **options):
    sync = _endless(store, run, report, **{**OFTEN, **options})
    with contextlib.ExitStack() as stack:
        finish = sync.finish
        stack.enter_context(contextlib.suppress(LeaseLostError))
        stack.callback(finish, "released", 0.0)

        def finish_once(*arguments, **more):
            stack.pop_all()
            return finish(*arguments, **more)

        sync.finish = finish_once
        yield sync


def _record(store):
    return json.loads(store.get(f"live/{RUN}.json", 10**6)[0])


def _content(store, file):
    found = store.get(f"runs/{RUN}/{file}", 10**6)
    return None if found is None else found[0]


def test_beats_carry_how_far_the_run_is(store, run):
    steps = iter(range(10**6))
    with _synced(store, run, lambda: {"steps": next(steps)}):
        wait_for(lambda: _record(store).get("steps", 0) > 3)
    assert _record(store)["state"] == "released"


def test_what_changes_is_sent_while_the_run_goes_on(store, run):
    with _synced(store, run) as sync:
        for text in (b"one\n", b"one\ntwo\n"):
            run.metrics_file.write_bytes(text)
            wait_for(lambda text=text: _content(store, "metrics.jsonl") == text)
        assert sync.finish("finished", 0.0, reason="done") is None
    assert (_record(store)["state"], _record(store)["reason"]) == ("finished", "done")


def test_a_request_comes_with_a_beat(store, run):
    # A writer that beats all the time is in the way of others.
    with _synced(store, run, beat_s=0.5) as sync:
        assert ask(store, RUN, STOP, "enough") == "running"
        assert wait_for(lambda: sync.request) == {"ask": STOP, "reason": "enough"}


def test_a_store_that_is_gone_for_a_while_is_tried_again(folder, run, caplog):
    store = Failing(folder)
    with _synced(store, run):
        store.failing = ALL
        run.metrics_file.write_bytes(b"one\n")
        wait_for(lambda: "gone; training goes on" in caplog.text)
        store.failing = ()
        wait_for(lambda: _content(folder, "metrics.jsonl") == b"one\n")
    # Once for beats and once for pushes, however often they were tried.
    assert len(caplog.records) <= 2


def test_a_store_that_stays_gone_ends_the_wait(folder, run):
    store = Failing(folder)
    with _synced(store, run) as sync:
        store.failing = ALL
        run.metrics_file.write_bytes(b"one\n")
        assert sync.finish("finished", 0.0) == "gone"
        assert isinstance(sync.error, StoreError)
    store.failing = ()
    assert _record(folder)["state"] != "finished"


def test_a_run_is_told_as_ended_only_with_all_its_files(folder, run):
    store = Failing(folder)
    with _synced(store, run, push_s=600.0) as sync:
        store.failing = ("put",)
        assert sync.finish("finished", 0.0) == "gone"
    assert _record(folder)["state"] == "released"


def test_nothing_is_sent_after_another_worker_took_the_run(store, run):
    with _synced(store, run) as sync:
        wait_for(lambda: _content(store, "config.yaml"))
        other = {"format": 1, "worker": "two", "beat": 1, "state": "running"}
        name, data = f"live/{RUN}.json", json.dumps(other).encode()
        # Under a condition, as leases are written: a beat may be on its way.
        wait_for(lambda: store.put_if_unchanged(name, data, store.get(name, 2**16)[1]))
        wait_for(lambda: sync.is_lost)
        run.metrics_file.write_bytes(b"mine\n")
        sync.push_soon()
        with pytest.raises(LeaseLostError, match="another worker has this run"):
            sync.finish("finished", 5.0)
    assert _content(store, "metrics.jsonl") is None
    assert _record(store) == other


def test_nothing_is_sent_while_the_lease_may_have_expired(folder, run):
    store = Failing(folder)
    with _synced(store, run, push_s=600.0, expires_s=0.2) as sync:
        store.failing = BEATS
        run.metrics_file.write_bytes(b"one\n")
        time.sleep(0.2)
        assert "the lease could not be renewed" in sync.finish("finished", 0.0)
    assert _content(folder, "metrics.jsonl") is None


# How a sync ends: it beats on, and nothing follows its end.


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


def test_a_late_beat_does_not_follow_the_end(folder, run):
    entered, gate = threading.Event(), threading.Event()

    def report():
        if threading.current_thread().name == "beats":
            entered.set()
            assert gate.wait(60)
        return {"steps": 5}

    sync = _endless(folder, run, report)
    assert entered.wait(60)
    assert sync.finish(FINISHED, 5.0) is None
    gate.set()
    sync._threads[0].join(60)
    assert _record(folder)["state"] == FINISHED


def test_a_progress_that_cannot_be_read_stops_no_beat(folder, run, caplog):
    beaten = threading.Event()

    def report():
        if "beat" in _record(folder) and _record(folder)["beat"] > 3:
            beaten.set()
        raise KeyError("steps")

    with caplog.at_level(logging.ERROR):
        sync = _endless(folder, run, report)
        assert beaten.wait(60)
        assert sync.finish(FINISHED, 5.0) is None
    assert "progress of the run cannot be read" in caplog.text
    assert _record(folder)["state"] == FINISHED


@pytest.mark.parametrize("value", [float("nan"), "x" * 2 * LARGEST_BYTES])
def test_no_progress_makes_a_record_unreadable(folder, run, value):
    sync = _endless(folder, run, lambda: {"evaluation": {"mean": value}})
    assert sync.finish(FINISHED, 5.0) is None
    assert _record(folder).items() >= {"worker": "worker", "state": FINISHED}.items()


def test_without_time_nothing_more_is_sent_and_the_run_is_released(folder, run):
    """What is there stays whole: the state of a run ends with its manifest."""
    sync = _endless(folder, run)
    assert "no time left" in sync.finish(FINISHED, 60.0, 0.0)
    assert not [e for top in ("runs", "state") for e in folder.list(f"{top}/{RUN}/")]
    assert _record(folder)["state"] == RELEASED


def test_a_lease_is_not_given_back_while_a_push_is_on_its_way(folder, run):
    gated = Gated(folder)
    sync = _endless(gated, run)
    sync.push_soon()
    assert gated.reached.wait(60)
    assert "left to expire" in sync.finish(FINISHED, 0.2)
    assert _record(folder)["state"] == RUNNING
    gated.gate.set()
    sync._threads[1].join(60)
    with pytest.raises(StoreError, match="given back"):
        sync._check()


# The process that sends.


class _Said(list):
    def __call__(self, **event):
        self.append(event)


def _sender(store, run, **more):
    ticket = {"store": store.url, "run": RUN, "path": str(run.path), "about": {"algo": "ppo"}}
    ticket |= {"take_ended": False, "resumes": False, "stall_s": 0.5, **OFTEN}
    said, is_over, answers = _Said(), threading.Event(), []
    sender = Sender({**ticket, **more}, is_over, said)
    thread = threading.Thread(target=lambda: answers.append(sender.run()))
    thread.start()

    def end():
        is_over.set()
        thread.join(60)
        return answers[0]

    return end, said


def test_a_sender_sends_all_and_says_how_the_run_ended(store, run):
    end, said = _sender(store, run)
    assert end() is None
    assert said == []
    record = _record(store)
    assert (record["state"], record["reason"]) == ("finished", "all steps taken")
    assert (record["algo"], record["steps"]) == ("ppo", 0)
    assert _content(store, "status.json") == run.status_file.read_bytes()


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (FINISHED, "finished"),
        (INTERRUPTED, "released"),
        ("running", "released"),
        ("failed", "failed"),
    ],
)
def test_the_state_of_a_run_decides_who_may_go_on(folder, run, state, told):
    run.write_status(state, message="why")
    end, _ = _sender(folder, run)
    assert end() is None
    assert (_record(folder)["state"], _record(folder)["reason"]) == (told, "why")


def test_a_run_that_was_discarded_is_a_failure_without_files(folder, run, tmp_path):
    run.path.rename(tmp_path / "discarded")
    end, _ = _sender(folder, run)
    assert end() is None
    assert _record(folder)["state"] == "failed"
    assert list(folder.list("runs/")) == []


def test_a_sender_waits_for_an_earlier_one_of_the_same_directory(folder, run):
    end_first, _ = _sender(folder, run)
    wait_for(lambda: folder.get(f"live/{RUN}.json", 10**6))
    first = _record(folder)["worker"]
    end_second, said = _sender(folder, run, take_ended=True)
    wait_for(lambda: _content(folder, "config.yaml"))
    assert _record(folder)["worker"] == first
    end_first()
    wait_for(lambda: _record(folder)["worker"] != first)
    assert end_second() is None
    assert said == []


def test_a_sender_says_who_has_the_run(folder, run):
    assert RunLease(folder, RUN, "worker-7").claim({})
    end, said = _sender(folder, run)
    (event,) = wait_for(lambda: said)
    assert event["lost"]
    assert "worker-7 has the run sweep/a" in event["stop"]
    assert "worker-7" in end()


def test_a_request_is_passed_on_and_cancels_the_run(folder, run):
    run.write_status(INTERRUPTED, message="stopped by a request")
    end, said = _sender(folder, run)
    wait_for(lambda: folder.get(f"live/{RUN}.json", 10**6))
    ask(folder, RUN, STOP, "enough")
    assert wait_for(lambda: said) == [{"stop": "stopped by a request in the store: enough"}]
    assert end() is None
    assert _record(folder)["state"] == "cancelled"


def test_a_store_that_takes_nothing_is_given_up(folder, run, monkeypatch):
    store = Failing(folder)
    monkeypatch.setattr("rlzoo_plus.runs.store_sender.open_store", lambda _: store)
    end, _ = _sender(folder, run, push_s=600.0)
    wait_for(lambda: folder.get(f"live/{RUN}.json", 10**6))
    store.failing = ("put",)
    assert end() == "gone"
    # Others need not wait until the lease expires.
    assert _record(folder)["state"] == "released"


def test_a_store_that_was_never_there_is_given_up(folder, run, monkeypatch):
    store = Failing(folder)
    store.failing = ALL
    monkeypatch.setattr("rlzoo_plus.runs.store_sender.open_store", lambda _: store)
    end, said = _sender(folder, run)
    wait_for(lambda: said)
    assert end() == "gone"
    assert said == [{"warning": "gone; training goes on, and this is tried again"}]


def test_a_server_that_ignores_conditions_is_found_out(run, tmp_path, monkeypatch):
    with store_of("s3", tmp_path, monkeypatch) as store:
        ignore_conditions(store)
        monkeypatch.setattr("rlzoo_plus.runs.store_sender.open_store", lambda _: store)
        end, said = _sender(store, run)
        assert end() is None
    (event,) = said
    assert "ignores the conditions of writes" in event["warning"]
