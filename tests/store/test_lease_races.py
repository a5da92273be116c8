"""In any order of requests, some failing: one owner, no request lost, and ends are final."""

import random
import threading

import pytest

from rlzoo_plus.store.contract import Entry, StoreError
from rlzoo_plus.store.lease import (
    CANCELLED,
    ENDED,
    FAILED,
    FINISHED,
    KILL,
    RELEASED,
    RUNNING,
    STOP,
    LeaseLostError,
    RunLease,
    ask,
    lease_name,
    list_leases,
    read_record,
    reopen,
)

RUN = "sweep/a"
NAME = lease_name(RUN)
# In requests: with each, the clock of the store below goes on by one.
EXPIRES = 12.0
N_ORDERS, N_REQUESTS, N_WORKERS, N_USERS = 30, 500, 3, 2


class OverError(BaseException):
    """Ends a story when there were enough requests."""


class Turns:
    """A store in memory whose requests are made one after another, in an order drawn from a seed.

    Of ten requests three fail, half of these after the store obeyed. What was written is in
    `written`: when, by which thread, and the record.
    """

    url = "memory"

    def __init__(self, seed):
        self._random = random.Random(seed)
        self._objects = {}
        self._turn = threading.Condition()
        self._actors, self._waiting, self._next = set(), set(), None
        self.now, self.written = 0, []

    def play(self, stories):
        """Tell stories at once, functions by the names of their threads."""
        errors = []

        def run(story):
            try:
                story()
            except OverError:
                pass
            except BaseException as error:
                errors.append(error)
            finally:
                with self._turn:
                    self._actors.discard(threading.current_thread().name)
                    self._choose()

        self._actors = set(stories)
        threads = [
            threading.Thread(target=run, args=(story,), name=name)
            for name, story in stories.items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error

    def get(self, name, largest):
        return self._request(lambda: self._objects[name][:2] if name in self._objects else None)

    def list(self, prefix):
        return iter(self._request(lambda: list(self._entries(prefix))))

    def put_if_absent(self, name, data):
        return self._put_if(name, data, None)

    def put_if_unchanged(self, name, data, tag):
        return self._put_if(name, data, tag)

    def pause(self):
        """Let somebody else make a request."""
        self._request(lambda: None, may_fail=False)

    def _entries(self, prefix):
        for name, (data, tag, written) in self._objects.items():
            if name.startswith(prefix):
                yield Entry(name, len(data), tag, float(self.now - written))

    def _put_if(self, name, data, tag):
        def write():
            if self._objects.get(name, (None, None))[1] != tag:
                return None
            new = str(self.now)
            self._objects[name] = (data, new, self.now)
            self.written.append((self.now, threading.current_thread().name, read_record(data)))
            return new

        return self._request(write)

    def _request(self, obey, may_fail=True):
        me = threading.current_thread().name
        with self._turn:
            self._waiting.add(me)
            self._choose()
            self._turn.wait_for(lambda: self._next == me)
            self._next = None
            self._waiting.discard(me)
            self.now += 1
            if self.now > N_REQUESTS:
                raise OverError
            fate = self._random.random() if may_fail else 1.0
            if fate < 0.15:
                raise StoreError("not obeyed")
            answer = obey()
            if fate < 0.3:
                raise StoreError("obeyed")
            return answer

    def _choose(self):
        # Only once all wait: the order is the seed's, not that of the threads.
        if self._next is None and self._actors and self._waiting == self._actors:
            self._next = self._random.choice(sorted(self._actors))
            self._turn.notify_all()


def _again(call, *args, **options):
    while True:
        try:
            return call(*args, **options)
        except StoreError:
            continue


def _work(store, name, seed):
    """Claim the run again and again, also by an old listing, and be frozen now and then."""
    draw = random.Random(f"{seed} {name}")
    while True:
        listed = _again(list_leases, store, "sweep")
        for _ in range(draw.choice([0, 0, 3])):
            store.pause()
        lease = RunLease(store, RUN, name)
        if not _again(lease.claim, listed, EXPIRES):
            continue
        try:
            for _ in range(draw.randrange(6)):
                _beat(store, lease)
                if lease.request is not None:
                    break
                for _ in range(draw.choice([0, 1, 8])):
                    store.pause()
            done = FINISHED if store.now > N_REQUESTS / 2 else FAILED
            end = CANCELLED if lease.request else draw.choice([done, RELEASED])
            _beat(store, lease, end)
        except LeaseLostError:
            continue


def _beat(store, lease, state=RUNNING):
    _again(lease.beat, state, step=1)
    assert store.written[-1][2]["worker"] == lease.worker, "two owners at once"


def _use(store, name, seed):
    """Cancel the run and open it again, with and without a worker that is alive."""
    draw = random.Random(f"{seed} {name}")
    while True:
        for _ in range(draw.randrange(20)):
            store.pause()
        entry = _again(list_leases, store, "sweep").get(NAME)
        gone = entry.tag if entry is not None and entry.age_s >= EXPIRES else None
        if draw.random() < 0.5:
            state = _again(ask, store, RUN, draw.choice([STOP, KILL]), name, gone=gone)
            assert state in (RUNNING, *ENDED)
        else:
            found = _again(store.get, NAME, 2**16)
            asked = found is not None and "request" in read_record(found[0])
            _again(reopen, store, RUN, gone=gone if asked else None)


def _problem(old, new):
    """Return why a record must not follow another, None if it may."""
    (before, _, was), (now, writer, is_) = old, new
    is_expired, is_worker = now - before >= EXPIRES, writer.startswith("worker")
    is_own = is_worker and was["worker"] == is_["worker"] == writer
    change = (was["state"], is_["state"])
    if was["state"] == is_["state"] != RUNNING:
        return None if is_own else "ended twice"
    if was["state"] in ENDED:
        allowed = not is_worker and is_["state"] == RELEASED and was["state"] != FINISHED
        return None if allowed else f"an end was not final: {change}"
    if was["state"] == RELEASED:
        allowed = is_["state"] == (RUNNING if is_worker else CANCELLED)
        return None if allowed else f"a released run: {change}"
    if "request" in was and not (is_["state"] in ENDED or "request" in is_):
        reopened = not is_worker and is_["state"] == RELEASED and is_expired
        return None if reopened else "a request was lost"
    if is_own or is_expired:
        return None
    asked = not is_worker and "request" in is_ and is_["worker"] == was["worker"]
    return None if asked else f"taken from a worker that is alive: {change}"


@pytest.mark.parametrize("seed", range(N_ORDERS))
def test_in_any_order_of_requests(seed):
    store = Turns(seed)
    stories = {
        f"worker {n}": lambda n=n: _work(store, f"worker {n}", seed) for n in range(N_WORKERS)
    }
    stories |= {f"user {n}": lambda n=n: _use(store, f"user {n}", seed) for n in range(N_USERS)}
    store.play(stories)
    assert len(store.written) > 3, store.written
    problems = [_problem(*pair) for pair in zip(store.written, store.written[1:], strict=False)]
    assert not any(problems), [p for p in problems if p]
