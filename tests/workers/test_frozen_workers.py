"""A worker that was frozen in the middle of a push wakes up, and overwrites nothing."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from support.processes import environ_of_tests, wait_for
from support.stores import s3_server

from rlzoo_plus.store.contract import StoreError, open_store
from rlzoo_plus.store.lease import LARGEST_BYTES, RunLease, lease_name, list_leases, read_record
from rlzoo_plus.store.mirror import RunMirror

RUN = "sweep/a"

# A worker whose lease lasts two seconds.
_WORKER = """
import sys
from pathlib import Path
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.lease import RunLease, list_leases
from rlzoo_plus.store.mirror import RunMirror
from rlzoo_plus.store.sync import RunSync
store, path = open_store(sys.argv[1]), Path(sys.argv[2])
lease = RunLease(store, "sweep/a", "frozen")
assert lease.claim(list_leases(store, "sweep"))
make = lambda check: RunMirror(store, "sweep/a", path, check)
sync = RunSync(store, lease, make, dict, beat_s=0.3, push_s=3600.0, expires_s=2.0)
sync.start()
sync.push_soon()
print("pushing", flush=True)
sys.stdin.readline()
print("lost" if sync.is_lost else "has it")
"""


class Throttled:
    """A proxy in front of the server that holds back requests which write files, until told."""

    def __init__(self, endpoint):
        import http.client
        import http.server

        self.held, self.go, self.n_held = threading.Event(), threading.Event(), 0
        self.n_under_way, self.lock = 0, threading.Lock()
        outer, host = self, endpoint.rpartition("/")[2]

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self):
                with outer.lock:
                    outer.n_under_way += 1
                try:
                    self._forward_one()
                finally:
                    with outer.lock:
                        outer.n_under_way -= 1

            def _forward_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.command == "PUT" and "/runs/" in self.path and not outer.go.is_set():
                    outer.n_held += 1
                    outer.held.set()
                    # As a server that is overloaded: the client shall send it again.
                    self._answer(503, [], b"")
                    return
                upstream = http.client.HTTPConnection(host)
                upstream.request(self.command, self.path, body, dict(self.headers))
                answer = upstream.getresponse()
                self._answer(answer.status, answer.getheaders(), answer.read())

            do_GET = do_PUT = do_HEAD = do_POST = _forward  # noqa: N815

            def _answer(self, status, headers, body):
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "evaluations.jsonl").write_text("of the frozen worker\n")
    return path


def freeze(worker, proxy):
    """Stop a worker that is sending nothing; return whether it is stopped."""
    os.kill(worker.pid, signal.SIGSTOP)
    threading.Event().wait(0.1)
    if proxy.n_under_way:
        os.kill(worker.pid, signal.SIGCONT)
    return not proxy.n_under_way


def test_a_frozen_worker_sends_nothing_after_it_wakes_up(run, tmp_path, monkeypatch):
    with s3_server(monkeypatch) as url:
        proxy = Throttled(os.environ["AWS_ENDPOINT_URL"])
        worker = subprocess.Popen(
            [sys.executable, "-c", _WORKER, url, str(run)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ_of_tests(AWS_ENDPOINT_URL=proxy.endpoint),
        )
        try:
            # In the middle of a push: its first attempt was refused, and botocore waits. What it
            # has begun to send could not be taken back, so not in the middle of a request.
            wait_for(proxy.held.is_set, worker)
            assert wait_for(lambda: freeze(worker, proxy), worker)
            store = open_store(url)
            lease = RunLease(store, RUN, "taker")
            assert wait_for(lambda: lease.claim(list_leases(store, "sweep"), 2.0), worker)
            mine = tmp_path / "mine"
            mine.mkdir()
            (mine / "evaluations.jsonl").write_text("of the taker\n")
            RunMirror(store, RUN, mine).push()
            proxy.go.set()
            os.kill(worker.pid, signal.SIGCONT)
            # Long enough for all attempts that botocore would make.
            threading.Event().wait(8.0)
            said, _ = worker.communicate("\n", timeout=60)
            assert said.split() == ["pushing", "lost"]
            content = store.get("runs/sweep/a/evaluations.jsonl", 99)[0]
            assert content == b"of the taker\n"
            record = read_record(store.get(lease_name(RUN), LARGEST_BYTES)[0])
            assert record["worker"] == "taker"
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()
            proxy.close()


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
                from botocore.awsrequest import AWSResponse

                return AWSResponse(request.url, 503, {}, _Empty())
            return None

        store._client.meta.events.register("before-send.s3", fail_once)
        with pytest.raises(StoreError, match="not any more"):
            store.put("runs/a/video.mp4", source, check)
        assert store.get("runs/a/video.mp4", 99) is None
        store.put("runs/a/video.mp4", source)
        assert next(iter(store.list("runs/a/"))).size == size


class _Empty:
    def stream(self, *_, **__):
        yield b""

    def read(self, *_):
        return b""


def test_a_shared_folder_is_asked_at_the_last_moment(tmp_path):
    store = open_store(tmp_path / "store")
    store.put("runs/a/log.txt", b"of the taker")

    def check():
        raise StoreError("not any more")

    with pytest.raises(StoreError, match="not any more"):
        store.put("runs/a/log.txt", b"of the frozen worker", check)
    assert store.get("runs/a/log.txt", 99)[0] == b"of the taker"
    assert list((tmp_path / "store/.new").iterdir()) == []
