"""Stores for tests: a folder, moto's S3 in this process, Ceph's, and servers that misbehave."""

import contextlib
import functools
import io
import random
import secrets

import numpy as np
import pytest

from rlzoo_plus.artifacts.checkpoint import CheckpointStore
from rlzoo_plus.store.contract import open_store

S3_KINDS = ("s3", pytest.param("ceph", marks=pytest.mark.slow))
KINDS = ("folder", *S3_KINDS)


@contextlib.contextmanager
def s3_server(monkeypatch):
    """Serve S3 on a free port; AWS's settings point to it. Yields the URL of a new bucket."""
    pytest.importorskip("moto", reason="needs the extra dev")
    yield _new_bucket(monkeypatch, shared_server(), "test", "test")


@functools.cache
def shared_server():
    """Return the endpoint of the server of this process: to stop one takes half a second."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


def ceph_url(monkeypatch):
    """Return the URL of a new bucket on a real server; AWS's settings point to it."""
    pytest.importorskip("boto3", reason="needs the extra aws")
    from support.ceph import KEY, SECRET, shared_cluster, why_not

    if reason := why_not():
        pytest.skip(reason)
    return _new_bucket(monkeypatch, shared_cluster().endpoint, KEY, SECRET)


def _new_bucket(monkeypatch, endpoint, key, secret):
    import boto3

    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    bucket = f"runs-{secrets.token_hex(4)}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/lab"


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
    elif kind == "ceph":
        yield ceph_url(monkeypatch)
    else:
        with s3_server(monkeypatch) as url:
            yield url


@contextlib.contextmanager
def store_of(kind, tmp_path, monkeypatch):
    """Yield an empty store of a kind."""
    with url_of(kind, tmp_path, monkeypatch) as url:
        yield open_store(url)


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
def folder(tmp_path, monkeypatch, cache):
    """Return an empty store in a folder, where the kind is all the same."""
    with store_of("folder", tmp_path, monkeypatch) as made:
        yield made
