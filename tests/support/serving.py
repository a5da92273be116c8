"""Folders as `deploy` writes them, made at once; and servers in processes of their own.

As a program, it is `serve` with one option more: `serving.py --shadow-command JSON RUN [OPTIONS]`.
"""

import contextlib
import functools
import hashlib
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import numpy as np

N = 3
TOKEN = "RLZOO_PLUS_SERVE_TOKEN"


def write_policy(folder, version=1.0, *, has_state=False, n=N, choices=False, name="tiny"):
    """Write a policy: the sum of what it sees, and its version (or how many it has seen).

    With `choices` it returns the index of the largest entry.
    """
    from onnx import TensorProto, checker, helper

    kind = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("observation", kind, [1, n])]
    outputs = [helper.make_tensor_value_info("action", kind, [1, 2])]
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    number = helper.make_tensor("version", kind, [1, 1], [version])
    one = helper.make_tensor("one", kind, [1, 1], [1.0])
    nodes = [helper.make_node("ReduceSum", ["observation", "axes"], ["sum"], keepdims=1)]
    second = "version"
    if has_state:
        inputs.append(helper.make_tensor_value_info("seen", kind, [1, 1]))
        outputs.append(helper.make_tensor_value_info("seen_out", kind, [1, 1]))
        nodes.append(helper.make_node("Add", ["seen", "one"], ["seen_out"]))
        second = "seen_out"
    nodes.append(helper.make_node("Concat", ["sum", second], ["action"], axis=1))
    action = {"name": "action", "dtype": "float32", "shape": [1, 2], "meaning": ""}
    space = {"kind": "box", "low": [-1000.0] * 2, "high": [1000.0] * 2}
    if choices:
        nodes = [helper.make_node("ArgMax", ["observation"], ["action"], axis=1, keepdims=0)]
        outputs = [helper.make_tensor_value_info("action", TensorProto.INT64, [1])]
        action |= {"dtype": "int64", "shape": [1]}
        space = {"kind": "Discrete", "space": f"Discrete({n})"}
    graph = helper.make_graph(nodes, "tiny", inputs, outputs, [axes, number, one])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    checker.check_model(model)
    data = model.SerializeToString()
    port = {"dtype": "float32", "meaning": ""}
    bounds = {"low": [-100.0] * n, "high": [100.0] * (n - 1) + [None]}
    ports = [{"name": "observation", "shape": [1, n], **port, **bounds}]
    made = [action]
    if has_state:
        ports.append({"name": "seen", "shape": [1, 1], **port})
        made.append({"name": "seen_out", "shape": [1, 1], **port})
    about = {
        "format": 1,
        "name": name,
        "algorithm": "ppo",
        "environment": {"id": "Tiny-v0"},
        "rate_hz": 50.0,
        "policy": {
            "file": "policy.onnx",
            "inputs": ports,
            "outputs": made,
            "feedback": {"seen_out": "seen"} if has_state else {},
        },
        "action": space,
        "commands": {},
        "examples": [],
        "files": {"policy.onnx": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.onnx").write_bytes(data)
    (folder / "deploy.json").write_text(json.dumps(about))
    return folder


class Server:
    """A server in a process of its own, at a port that the system chose."""

    def __init__(self, *words, program=("-m", "rlzoo_plus", "serve"), patience_s=90, **environ):
        self._lines = queue.Queue()
        self.seen, self._open = [], contextlib.ExitStack()
        command = [sys.executable, *program, *map(str, words), "--port", "0"]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
        )
        threading.Thread(target=self._read, daemon=True).start()
        end = time.monotonic() + patience_s
        while True:
            line = self._lines.get(timeout=max(end - time.monotonic(), 0.1))
            assert line is not None, "".join(self.seen)
            if line.startswith("http"):
                self.url = line.split()[0]
                self.port = urlsplit(self.url).port
                return

    def _read(self):
        for line in self.process.stdout:
            self.seen.append(line)
            self._lines.put(line)
        self._lines.put(None)

    @property
    def output(self):
        return "".join(self.seen)

    def ask(self, method, path, body=None, headers=None, connection=None):
        """Return status, headers and body of an answer."""
        made = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            data = json.dumps(body) if isinstance(body, dict | list) else body
            made.request(method, path, data, headers or {})
            answer = made.getresponse()
            return answer.status, dict(answer.headers), answer.read()
        finally:
            if connection is None:
                made.close()

    def post(self, path, body, **headers):
        """Return status and JSON of an answer."""
        status, _, data = self.ask("POST", path, body, headers)
        return status, json.loads(data)

    def metrics(self):
        """Return the lines of /metrics."""
        return self.ask("GET", "/metrics")[2].decode()

    def connect(self, **options):
        """Return an open WebSocket, and what the server says first."""
        from websockets.sync.client import connect

        address = f"ws://127.0.0.1:{self.port}/v1/session"
        socket = self._open.enter_context(connect(address, compression=None, **options))
        return socket, json.loads(socket.recv(timeout=30))

    def end(self):
        """Ask it to end; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._open.close()


def say(socket, **message):
    """Return the answer to a message of a session."""
    socket.send(json.dumps(message))
    return json.loads(socket.recv(timeout=30))


def until(condition, seconds=20):
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def main(words):
    from rlzoo_plus.commands import dispatch
    from rlzoo_plus.serving import server_start

    option, command, *rest = words
    assert option == "--shadow-command"
    more = {"shadow_command": tuple(json.loads(command))}
    server_start.Plan = functools.partial(server_start.Plan, **more)
    return dispatch.run("serve", rest)


def observations(count, seed=0, n=N):
    """Return observations within the bounds of the tiny policy."""
    return np.random.default_rng(seed).uniform(-50, 50, (count, n)).astype(np.float32)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
