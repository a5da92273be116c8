"""How long sending a run directory to S3 takes, beside `aws s3 sync`, over a slow connection.

    .venv/bin/python -m benchmarks.sync --files 320 --latency-ms 30

Serves S3 with moto on this machine; each request takes the latency longer. In turn, round by round:
everything new, and again with nothing changed. Needs the extra `aws`, moto, and for the comparison
the command `aws`.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.s3_server import BUCKET, serve_s3


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=320)
    parser.add_argument("--kilobytes", type=int, default=16, help="size of a file")
    parser.add_argument("--latency-ms", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    has_aws = shutil.which("aws") is not None
    first: dict[str, list[float]] = {"push": [], "aws s3 sync": []}
    again: dict[str, list[float]] = {"push": [], "aws s3 sync": []}
    with serve_s3(args.latency_ms / 1e3), tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        _write_run(run, args.files, args.kilobytes * 1024)
        for number in range(args.rounds):
            tools = [("push", _push), ("aws s3 sync", _aws)][: 2 if has_aws else 1]
            for name, send in tools if number % 2 else tools[::-1]:
                (run / ".store.json").unlink(missing_ok=True)
                once = send(run, f"{BUCKET}/{secrets.token_hex(4)}")
                first[name].append(once())
                again[name].append(once())
    for name in first:
        if first[name]:
            one, two = statistics.median(first[name]), statistics.median(again[name])
            print(f"{name:<12} first {one:6.2f} s   nothing changed {two:6.3f} s")
    if has_aws:
        ratios = [a / p for a, p in zip(first["aws s3 sync"], first["push"], strict=True)]
        print(f"first: aws s3 sync takes {statistics.median(ratios):.2f} times as long as push")


def _push(run: Path, url: str) -> Callable[[], float]:
    from rlzoo_plus.store.contract import open_store
    from rlzoo_plus.store.mirror import RunMirror

    mirror = RunMirror(open_store(url), "sweep/run", run)
    return lambda: _timed(mirror.push)


def _aws(run: Path, url: str) -> Callable[[], float]:
    command = ["aws", "s3", "sync", "--only-show-errors", str(run), f"{url}/sweep/run"]
    return lambda: _timed(lambda: subprocess.run(command, check=True))


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _write_run(path: Path, files: int, size: int) -> None:
    for number in range(files):
        file = path / "monitor" / f"{number}.monitor.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(size))


if __name__ == "__main__":
    main()
