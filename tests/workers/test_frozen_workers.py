"""A worker that was frozen in the middle of a push wakes up, and overwrites nothing."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from support.processes import environ_of_tests, wait_for
from support.stores import busy_answer, s3_server

from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import LARGEST_BYTES, RunLease, lease_name, list_leases, read_record
from rlzoo_plus.store.mirror import RunMirror

RUN = "sweep/a"

# A worker whose lease lasts two seconds. No file of a run is sent while there is no file `go`.
_WORKER = """
import sys
from pathlib import Path
from support.stores import busy_answer
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import RunLease, list_leases
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import RunSync
store, path, go = open_store(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])

def hold(request, **_):
    if request.method == "PUT" and "/runs/" in request.url and not go.exists():
        print("held", flush=True)
        return busy_answer(request)

store._client.meta.events.register("before-send.s3", hold)
lease = RunLease(store, "sweep/a", "frozen")
assert lease.claim(list_leases(store, "sweep"))
make = lambda check: RunMirror(store, "sweep/a", path, check)
sync = RunSync(store, lease, make, dict, beat_s=0.3, push_s=3600.0, expires_s=2.0)
sync.start()
sync.push_soon()
sys.stdin.readline()
print("lost" if sync.is_lost else "has it")
"""


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "evaluations.jsonl").write_text("of the frozen worker\n")
    return path


def test_a_frozen_worker_sends_nothing_after_it_wakes_up(run, tmp_path, monkeypatch):
    go = tmp_path / "go"
    with s3_server(monkeypatch) as url:
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, url, str(run), str(go)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ_of_tests(),
        )
        try:
            # In the middle of a push: its first attempt was refused, and botocore waits.
            assert worker.stdout.readline() == "held\n"
            os.kill(worker.pid, signal.SIGSTOP)
            store = open_store(url)
            lease = RunLease(store, RUN, "taker")
            assert wait_for(lambda: lease.claim(list_leases(store, "sweep"), 2.0), worker)
            mine = tmp_path / "mine"
            mine.mkdir()
            (mine / "evaluations.jsonl").write_text("of the taker\n")
            RunMirror(store, RUN, mine).push()
            go.touch()
            os.kill(worker.pid, signal.SIGCONT)
            # Long enough for all attempts that botocore would make.
            threading.Event().wait(8.0)
            said, _ = worker.communicate("\n", timeout=60)
            assert said.split()[-1] == "lost"
            content = store.get("runs/sweep/a/evaluations.jsonl", 99)[0]
            assert content == b"of the taker\n"
            record = read_record(store.get(lease_name(RUN), LARGEST_BYTES)[0])
            assert record["worker"] == "taker"
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


@pytest.mark.parametrize("size", [10, 9 * 2**20, 65 * 2**20])
def test_each_attempt_asks_whether_it_may_still_send(size, tmp_path, monkeypatch):
    """In one request, in one from a file, and in parts."""
    source = tmp_path / "source"
    source.write_bytes(b"x" * size)
    with s3_server(monkeypatch) as url:
        store, asked = open_store(url), []

        def check():
            asked.append(True)
            if len(asked) > 1:
                raise StoreError("not any more")

        # The first attempt fails, so that there is a second one.
        def fail_once(request, **_):
            if len(asked) == 1 and request.method == "PUT":
                return busy_answer(request)
            return None

        store._client.meta.events.register("before-send.s3", fail_once)
        with pytest.raises(StoreError, match="not any more"):
            store.put("runs/a/video.mp4", source, check)
        assert store.get("runs/a/video.mp4", 99) is None
        store.put("runs/a/video.mp4", source)
        assert next(iter(store.list("runs/a/"))).size == size


def test_a_shared_folder_is_asked_at_the_last_moment(tmp_path):
    store = open_store(tmp_path / "store")
    store.put("runs/a/log.txt", b"of the taker")

    def check():
        raise StoreError("not any more")

    with pytest.raises(StoreError, match="not any more"):
        store.put("runs/a/log.txt", b"of the frozen worker", check)
    assert store.get("runs/a/log.txt", 99)[0] == b"of the taker"
    assert list((tmp_path / "store/.new").iterdir()) == []
