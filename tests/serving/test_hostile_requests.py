"""Thousands of malformed requests: never a 5xx, never a traceback, and the next one is answered."""

import json
import random
import socket as sockets

import pytest
from support.serving import Server, say, write_policy
from support.shields import changed_policy, shield_of_a_car

PATHS = ("/v2/models/tiny/infer", "/invocations", "/v1/override", "/v2/models/tiny", "/metrics")
WHEELS = [f"{end}_{side}_wheel" for end in ("front", "rear") for side in ("left", "right")]
GOOD = (
    {"inputs": [{"name": "observation", "shape": [1, 3], "datatype": "FP32", "data": [0, 0, 0]}]},
    {"observation": [0, 0, 0], "session": "a", "reset": True, "reward": 1.0},
    {"word": "release", "for_s": 1, "session": "a"},
    {"observation": [0, 0, 0], "session": "b", "state": {wheel: [0, 0] for wheel in WHEELS}},
)
ODD = (
    *(None, True, -1, 0, 2**70, 1e308, float("nan"), float("-inf"), "", "x" * 5000, "\x00", "é"),
    *([], {}, [[]], [None], [[1], [1, 2]], {"a": 1}, [1] * 4000, "\ud800", [[[[[[[[[1]]]]]]]]]),
)


def mutated(value, random):
    """Return a value with something in it replaced, removed or added."""
    if random.random() < 0.25:
        return random.choice(ODD)
    if isinstance(value, dict):
        made = dict(value)
        if made:
            key = random.choice(list(made))
            made[key] = mutated(made[key], random)
            if random.random() < 0.2:
                del made[key]
        if random.random() < 0.2:
            made[random.choice(["parameters", "outputs", "id", "instances", "odd"])] = (
                random.choice([*ODD, {"sequence_id": random.choice(ODD)}])
            )
        return made
    if isinstance(value, list) and value:
        made = list(value)
        made[random.randrange(len(made))] = mutated(made[0], random)
        return made
    return random.choice(ODD)


def body_of(random):
    data = json.dumps(mutated(random.choice(GOOD), random)).encode()
    if random.random() < 0.3:
        at = random.randrange(len(data))
        data = data[:at] + random.randbytes(3) + data[at:]
    return data[: random.randrange(len(data) + 1)] if random.random() < 0.1 else data


def headers_of(random):
    headers = {}
    if random.random() < 0.2:
        headers["Inference-Header-Content-Length"] = str(random.choice([-1, 0, 5, 10**30, "x"]))
    if random.random() < 0.1:
        headers["X-Agent-Id"] = random.choice(["", "a" * 100, "ok", "\x80"])
    if random.random() < 0.05:
        headers["Content-Encoding"] = "gzip"
    return headers


@pytest.fixture(scope="module", params=["plain", "shielded"])
def server(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp("fuzzed")
    policy = write_policy(folder / "tiny")
    if request.param == "shielded":
        changed_policy(policy, shield=shield_of_a_car())
    with Server(policy, "--audit", folder / "audit") as made:
        made.good = GOOD[1] if request.param == "plain" else GOOD[3]
        yield made
        assert "Traceback" not in made.output
        assert made.end() == 0


@pytest.mark.slow
def test_no_request_makes_an_error_of_the_server(server):
    import http.client

    chance, seen = random.Random(0), set()
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(5000):
        method, path = chance.choice(["POST"] * 8 + ["GET", "PUT"]), chance.choice(PATHS)
        if chance.random() < 0.05:
            path += chance.choice(["/../x", "%00", "?a=%ff", "//", "/versions/x/infer"])
        try:
            status, _, _ = server.ask(
                method, path, body_of(chance), headers_of(chance), connection=connection
            )
        except http.client.HTTPException:
            connection.close()
            continue
        seen.add(status)
        assert status < 500
    assert {200, 400, 404, 405} <= seen
    assert server.post("/v1/override", {"word": "release"})[0] == 200
    assert server.post("/invocations", server.good)[1]["source"] in ("policy", "shield")
    assert 'status="5' not in server.metrics()


def test_no_message_ends_a_session(server):
    chance = random.Random(1)
    server.post("/v1/override", {"word": "release"})
    socket, _ = server.connect()
    for _ in range(300):
        data = body_of(chance)
        socket.send(data)
        assert json.loads(socket.recv(timeout=30)).get("status", 200) < 500
    told = {**server.good, "observation": [1, 1, 1]}
    assert say(socket, **{k: told[k] for k in told if k != "session"})["action"] == [3, 1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /invocations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{",
        b"POST /ping HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /v1/session HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\r\n",
        bytes(range(256)) * 40,
    ],
)
def test_broken_connections_are_left(server, data):
    with sockets.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(data)
    assert server.ask("GET", "/ping")[0] == 200
