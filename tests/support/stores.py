"""Stores for tests: a folder, moto's S3 in this process, and servers that misbehave."""

import contextlib
import functools
import io
import random
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.store.contract import open_store

KINDS = ("folder", "s3")


@contextlib.contextmanager
def s3_server(monkeypatch):
    """Serve S3 on a free port; AWS's settings point to it. Yields the URL of a new bucket."""
    pytest.importorskip("moto", reason="needs the extra dev")
    use_s3(monkeypatch, shared_server())
    bucket = f"runs-{secrets.token_hex(4)}"
    # To make a client takes longer than most tests.
    moto_s3().create_bucket(bucket, "us-east-1")
    yield f"s3://{bucket}/lab"


def moto_s3():
    """Return what moto's server of this process keeps as S3."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]


def use_s3(monkeypatch, endpoint, **more):
    """Let AWS's settings point to a server; `more` are other settings, without their `AWS_`."""
    settings = {
        "ENDPOINT_URL": endpoint,
        "ACCESS_KEY_ID": "test",
        "SECRET_ACCESS_KEY": "test",
        "DEFAULT_REGION": "us-east-1",
        "EC2_METADATA_DISABLED": "true",
        **more,
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@functools.cache
def shared_server():
    """Return the endpoint of the server of this process: to stop one takes half a second."""
    from moto.s3.responses import S3Response
    from moto.server import ThreadedMotoServer

    put_object, lock = S3Response.put_object, threading.Lock()

    def put_one_at_a_time(response):
        # Moto looks for an object and then writes it: S3 lets one of several writers win.
        with lock:
            return put_object(response)

    S3Response.put_object = put_one_at_a_time
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def ignore_conditions(store):
    """Make a store send no conditions, as if the server did not know them."""

    def strip(request, **_):
        for header in ("If-None-Match", "If-Match"):
            if header in request.headers:
                del request.headers[header]

    for client in (store._client, store._quick):
        client.meta.events.register("before-sign.s3.PutObject", strip)


def busy_answer(request):
    """Return what a server that is overloaded answers: the client shall send it again."""
    from botocore.awsrequest import AWSResponse

    class Body(io.BytesIO):
        def stream(self, *_, **__):
            yield self.read()

    return AWSResponse(request.url, 503, {}, Body(b""))


def fail_requests(store, share, seed=0):
    """Make a share of a store's requests fail: half of them after the server obeyed."""
    from botocore.httpsession import URLLib3Session

    draw = random.Random(seed).random

    def send(request, **_):
        number = draw()
        if number >= share:
            return None
        if number < share / 2:
            URLLib3Session().send(request)
        return busy_answer(request)

    for client in (store._client, store._quick):
        client.meta.events.register("before-send.s3", send)


@contextlib.contextmanager
def url_of(kind, tmp_path, monkeypatch):
    """Yield the URL of an empty store of a kind."""
    if kind == "folder":
        yield str(tmp_path / "store")
    else:
        with s3_server(monkeypatch) as url:
            yield url


@contextlib.contextmanager
def store_of(kind, tmp_path, monkeypatch):
    """Yield an empty store of a kind."""
    with url_of(kind, tmp_path, monkeypatch) as url:
        yield open_store(url)


class Liar:
    """A server whose answer a test chooses: status, headers and body. It notes what is asked."""

    def __init__(self):
        self.answer, self.asked = (200, {}, b""), []
        liar = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self):
                self.rfile.read(int(self.headers.get("Content-Length", 0)))
                liar.asked.append(self.path)
                answer = liar.answer
                status, headers, body = answer(self.path) if callable(answer) else answer
                self.send_response_only(status)
                if not {"Content-Length", "Transfer-Encoding"} & set(headers):
                    headers = {**headers, "Content-Length": str(len(body))}
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = _answer  # noqa: N815

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # A client that reads no further is what the tests want.
        self.server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def save_checkpoint(path, step, rewards, weight):
    """Save a checkpoint of a run, with the rewards of its replay buffer."""
    store = CheckpointStore(path / "checkpoints", keep=2)
    columns = {"rewards": np.array(rewards, np.float32)}
    pending = store.chunk_store().snapshot(columns, len(rewards), None, None)
    store.save(step, {"weights": np.full(3, weight)}, {}, chunks={"replay": pending})


def content_of(path):
    """Return every file of a run that belongs to it, by name."""
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in path.rglob("*")
        if file.is_file() and not file.name.startswith(".")
    }


# Fixtures.


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Keep what commands cache in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=KINDS)
def store(request, tmp_path, monkeypatch, cache):
    """Return an empty store, of each kind."""
    with store_of(request.param, tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def liar(monkeypatch):
    """Return a server of any answers, to which AWS's settings point."""
    pytest.importorskip("boto3", reason="needs the extra aws")
    server = Liar()
    use_s3(monkeypatch, server.url)
    yield server
    server.close()


@pytest.fixture
def s3(tmp_path, monkeypatch, cache):
    """Return an empty store in moto's S3."""
    with store_of("s3", tmp_path, monkeypatch) as made:
        yield made


@pytest.fixture
def folder(tmp_path, monkeypatch, cache):
    """Return an empty store in a folder, where the kind is all the same."""
    with store_of("folder", tmp_path, monkeypatch) as made:
        yield made
