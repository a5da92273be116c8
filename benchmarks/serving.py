"""How fast a served policy answers: latency with 1 and 32 clients, decisions a second, memory.

The clients are processes of their own, on other cores where there are any.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import connect

WARM_UP = 50
SLEEPER = "import sys, time\nfor line in sys.stdin: time.sleep(1)"


def start(words: list[str], program: list[str]) -> tuple[subprocess.Popen, int]:
    """Start a server at any free port; return it and the port."""
    process = subprocess.Popen(
        [sys.executable, *program, *words], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    for line in process.stdout:
        if line.startswith("http"):
            return process, int(line.split()[0].rpartition(":")[2])
    raise RuntimeError("the server did not start")


def shape_of(port: int) -> list[int]:
    """Return the shape of an observation."""
    with connect(f"ws://127.0.0.1:{port}/v1/session", compression=None) as socket:
        return json.loads(socket.recv())["inputs"][0]["shape"][1:]


def by_websocket(port: int, count: int, hz: float | None, results: Any) -> None:
    """Measure decisions of one session, as fast as it can or at a rate."""
    took, given = [], json.dumps({"observation": np.zeros(shape_of(port)).tolist()})
    with connect(f"ws://127.0.0.1:{port}/v1/session", compression=None) as socket:
        socket.recv()
        due = time.perf_counter()
        for _ in range(count + WARM_UP):
            if hz is not None:
                due += 1 / hz
                time.sleep(max(due - time.perf_counter(), 0))
            begin = time.perf_counter()
            socket.send(given)
            answer = socket.recv()
            took.append(time.perf_counter() - begin)
    assert "action" in answer
    results.put(took[WARM_UP:])


def by_http(port: int, count: int, hz: float | None, results: Any) -> None:
    """Measure requests of one connection."""
    del hz
    took, given = [], json.dumps({"instances": [np.zeros(shape_of(port)).tolist()]})
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for _ in range(count + WARM_UP):
        begin = time.perf_counter()
        connection.request("POST", "/invocations", given)
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - begin)
    assert answer.status == 200
    results.put(took[WARM_UP:])


def by_triton(port: int, count: int, hz: float | None, results: Any) -> None:
    """Measure requests of the stock client, with binary tensors."""
    import tritonclient.http as triton

    del hz
    took, shape = [], shape_of(port)
    client = triton.InferenceServerClient(f"127.0.0.1:{port}")
    name = json.loads(_get(port, "/openapi.json"))["info"]["title"].split()[-1]
    given = triton.InferInput("observation", [1, *shape], "FP32")
    for _ in range(count + WARM_UP):
        given.set_data_from_numpy(np.zeros((1, *shape), np.float32))
        begin = time.perf_counter()
        client.infer(name, [given])
        took.append(time.perf_counter() - begin)
    results.put(took[WARM_UP:])


def _get(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    return connection.getresponse().read().decode()


WAYS = {"websocket": by_websocket, "http": by_http, "tritonclient": by_triton}


def measure(
    port: int, way: str, clients: int, count: int, hz: float | None = None
) -> tuple[float, float, float, float]:
    """Return p50 and p99 [ms], the largest [ms], and decisions a second."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [
        context.Process(target=WAYS[way], args=(port, count, hz, results)) for _ in range(clients)
    ]
    for process in processes:
        process.start()
    took = [results.get() for _ in processes]
    for process in processes:
        process.join()
    each = np.concatenate(took) * 1e3
    rate = sum(len(one) / sum(one) for one in took)
    return *np.percentile(each, [50, 99]).tolist(), float(each.max()), rate


def row(label: str, found: tuple[float, float, float, float]) -> None:
    """Print a line of the table."""
    p50, p99, most, rate = found
    print(f"{label:<44}{p50:8.2f}{p99:8.2f}{most:9.2f}{rate:10.0f}", flush=True)


def resident_mb(pid: int) -> float:
    """Return the memory of a process [MB]."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="a folder of `rlzoo-plus deploy`, or a RUN")
    parser.add_argument("--count", type=int, default=2000, help="requests of each client")
    parser.add_argument("--memory", type=int, default=0, metavar="N", help="decisions to count the "
                        "memory over, in place of latency")  # fmt: skip
    options = parser.parse_args()
    serve = ["-m", "rlzoo_plus", "serve"]
    with tempfile.TemporaryDirectory() as folder:
        audit = ["--audit", f"{folder}/audit"]
        if options.memory:
            process, port = start([options.run, "--port", "0", *audit], serve)
            memory(process.pid, port, options.memory)
            process.terminate()
            process.wait()
            return
        print(f"{'':<44}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>9}{'a second':>10}")
        for label, more in (("", []), (", audit", audit)):
            process, port = start([options.run, "--port", "0", *more], serve)
            for way in WAYS if not more else ("websocket",):
                for clients in (1, 32):
                    count = options.count if clients == 1 else options.count // 8
                    row(f"{way}, {clients} clients{label}", measure(port, way, clients, count))
            row(f"websocket, 1 client at 50 Hz{label}", measure(port, "websocket", 1, 500, 50))
            process.terminate()
            process.wait()
        with_shadow(options.run, folder, options.count)


def with_shadow(run: str, folder: str, count: int) -> None:
    """Measure beside a shadow that sleeps a second at each decision, and without one."""
    code = (
        "import sys; from pathlib import Path; from rlzoo_plus.serving import server_start as s, "
        "policy_source as p; run, file, code = sys.argv[1:]; "
        "s.serve(s.Plan(p.source_of(run), shadow=p.source_of(run) if code else None, "
        "shadow_file=Path(file), shadow_command=(sys.executable, '-c', code)), "
        "s.Address(port=0), lambda text: print(text, flush=True))"
    )
    for label, sleeper in (("without a shadow", ""), ("a shadow that sleeps 1 s", SLEEPER)) * 2:
        process, port = start([run, f"{folder}/shadow", sleeper], ["-c", code])
        row(f"websocket, 1 client, {label}", measure(port, "websocket", 1, count))
        process.terminate()
        process.wait()


def memory(pid: int, port: int, total: int) -> None:
    """Print the memory of the server as decisions are made, by many sessions after another."""
    part = max(total // 20, 1)
    for turn in range(21):
        print(f"{turn * part:>9,} decisions: {resident_mb(pid):.1f} MB", flush=True)
        with connect(f"ws://127.0.0.1:{port}/v1/session", compression=None) as socket:
            shape = json.loads(socket.recv())["inputs"][0]["shape"][1:]
            given = json.dumps({"observation": np.zeros(shape).tolist()})
            # Many on the way at once, which is faster.
            for _ in range(part // 10 if turn < 20 else 0):
                for _ in range(10):
                    socket.send(given)
                for _ in range(10):
                    socket.recv()


if __name__ == "__main__":
    main()
