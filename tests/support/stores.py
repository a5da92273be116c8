"""Stores for tests: a folder, moto's S3 in this process, and a server without conditions."""

import contextlib
import io
import random
import secrets

import pytest

from rlzoo_plus.store.contract import open_store

KINDS = ("folder", "s3")


@contextlib.contextmanager
def s3_server(monkeypatch):
    """Serve S3 on a free port; AWS's settings point to it. Yields the URL of a new bucket."""
    pytest.importorskip("moto", reason="needs the extra dev")
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        bucket = f"runs-{secrets.token_hex(4)}"
        boto3.client("s3").create_bucket(Bucket=bucket)
        yield f"s3://{bucket}/lab"
    finally:
        server.stop()


def ignore_conditions(store):
    """Make a store send no conditions, as if the server did not know them."""

    def strip(request, **_):
        for header in ("If-None-Match", "If-Match"):
            if header in request.headers:
                del request.headers[header]

    store._client.meta.events.register("before-sign.s3.PutObject", strip)


def fail_requests(store, share, seed=0):
    """Make a share of a store's requests fail: half of them after the server obeyed."""
    from botocore.awsrequest import AWSResponse
    from botocore.httpsession import URLLib3Session

    class Body(io.BytesIO):
        def stream(self, *_, **__):
            yield self.read()

    draw = random.Random(seed).random

    def send(request, **_):
        number = draw()
        if number >= share:
            return None
        if number < share / 2:
            URLLib3Session().send(request)
        return AWSResponse(request.url, 503, {}, Body(b""))

    store._client.meta.events.register("before-send.s3", send)


@contextlib.contextmanager
def store_of(kind, tmp_path, monkeypatch):
    """Yield an empty store of a kind."""
    if kind == "folder":
        yield open_store(tmp_path / "store")
        return
    with s3_server(monkeypatch) as url:
        yield open_store(url)
