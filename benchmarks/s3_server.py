"""Serves S3 with moto in a process of its own, each request a latency later, and counts them."""

from __future__ import annotations

import logging
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

BUCKET = "s3://bench"


class Requests:
    """The number of requests that the server has answered."""

    def __init__(self, counter: Any) -> None:
        self._counter, self._before = counter, 0

    def new(self) -> int:
        """Return the number since the last call."""
        before, self._before = self._before, int(self._counter.value)
        return self._before - before


@contextmanager
def serve_s3(latency_s: float = 0.0) -> Iterator[Requests]:
    """Serve S3 with one bucket, `BUCKET`; AWS's settings point to it."""
    import boto3

    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    counter = context.Value("q", 0)
    process = context.Process(target=_serve, args=(latency_s, theirs, counter), daemon=True)
    process.start()
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://127.0.0.1:{ours.recv()}",
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_DEFAULT_REGION="us-east-1",
        AWS_EC2_METADATA_DISABLED="true",
    )
    boto3.client("s3").create_bucket(Bucket=BUCKET.removeprefix("s3://"))
    try:
        yield Requests(counter)
    finally:
        process.kill()


def _serve(latency_s: float, port: Connection, counter: Any) -> None:
    """Run moto's S3 on a free port; its connections stay open, as S3's do."""
    from moto.server import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class KeptOpen(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

    app = create_backend_app("s3")

    def slow(environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        with counter.get_lock():
            counter.value += 1
        time.sleep(latency_s)
        return app(environ, start_response)

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, slow, threaded=True, request_handler=KeptOpen)
    port.send(server.port)
    server.serve_forever()
