"""S3 on this machine behind a connection that is slow, refuses, or breaks uploads on demand."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.s3_server import serve_s3

_TESTS = Path(__file__).parents[1] / "tests"


class Line:
    """The connection to the server; it is another process's, which costs this one nothing."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def be(self, *, delay_s: float = 0.0, is_gone: bool = False, breaks: bool = False) -> None:
        """Delay each request, refuse all connections, break each upload half-way, or none."""
        self._pipe.send((delay_s, is_gone, breaks))
        self._pipe.recv()

    def new_requests(self) -> dict[str, int]:
        """Return the number of requests of each kind since the last call."""
        self._pipe.send(None)
        found: dict[str, int] = self._pipe.recv()
        return found


@contextmanager
def serve_flaky_s3() -> Iterator[Line]:
    """Serve S3 with one bucket, `s3_server.BUCKET`; AWS's settings point to the connection."""
    with serve_s3():
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
        process = context.Process(target=_forward, args=(port, theirs), daemon=True)
        process.start()
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{ours.recv()}"
        try:
            yield Line(ours)
        finally:
            process.kill()


def _forward(port: int, pipe: Any) -> None:
    sys.path.append(str(_TESTS))
    from support.proxies import FlakyProxy

    proxy = FlakyProxy(port)
    pipe.send(proxy.port)
    while True:
        asked = pipe.recv()
        if asked is None:
            found, proxy.requests = proxy.requests, {}
            pipe.send(found)
            continue
        proxy.delay_s, proxy.is_gone, breaks = asked
        proxy.breaks_from = 1 if breaks else None
        if proxy.is_gone:
            proxy.leave()
        pipe.send(None)
