"""A served policy: the ways to ask it, what is refused, and how it ends."""

import http.client
import json
import shutil
import ssl
import struct
import subprocess
import threading

import numpy as np
import pytest
from support.serving import TOKEN, Server, observations, say, until, write_policy

from rlzoo_plus.commands import dispatch

INVOKE, INFER = "/invocations", "/v2/models/tiny/infer"


def tensor(rows, **more):
    array = np.asarray(rows, np.float32)
    entry = {"name": "observation", "shape": list(array.shape), "datatype": "FP32"}
    return {"inputs": [{**entry, "data": array.ravel().tolist()}], **more}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    with Server(write_policy(folder)) as made:
        yield made


@pytest.fixture(scope="module")
def with_state(tmp_path_factory):
    folder = write_policy(tmp_path_factory.mktemp("state"), has_state=True)
    with Server(folder) as made:
        yield made


def test_every_way_to_ask_gives_the_same_action(server):
    triton = pytest.importorskip("tritonclient.http")
    client = triton.InferenceServerClient(f"127.0.0.1:{server.port}")
    socket, hello = server.connect()
    assert hello["inputs"] == client.get_model_metadata("tiny")["inputs"]
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("tiny")
    rows = observations(20)
    for binary in (True, False):
        given = triton.InferInput("observation", list(rows.shape), "FP32")
        given.set_data_from_numpy(rows, binary_data=binary)
        wanted = triton.InferRequestedOutput("action", binary_data=binary)
        made = client.infer("tiny", [given], outputs=[wanted], request_id="7")
        assert made.get_response()["id"] == "7"
        np.testing.assert_allclose(made.as_numpy("action")[:, 0], rows.sum(1), atol=1e-4)
    by_tensor = np.reshape(server.post(INFER, tensor(rows))[1]["outputs"][0]["data"], (20, 2))
    by_list = server.post(INVOKE, {"instances": rows.tolist()})[1]["predictions"]
    for row, first, second in zip(rows, by_tensor, by_list, strict=True):
        third = say(socket, observation=row.tolist())
        assert third["action"] == second["action"] == first.tolist()
        assert third["source"] == "policy"
    socket.close()


def test_a_session_remembers_its_episode_alone(with_state):
    one, _ = with_state.connect()
    other, _ = with_state.connect()
    seen = [say(one, observation=[0, 0, 0])["action"][1] for _ in range(3)]
    assert seen == [1, 2, 3]
    assert say(other, observation=[0, 0, 0])["action"][1] == 1
    assert say(one, observation=[0, 0, 0], reset=True)["action"][1] == 1
    assert say(one, observation=[0, 0])["status"] == 400
    assert say(one, observation=[0, 0, 0])["action"][1] == 2


def test_a_sequence_of_the_protocol_remembers_its_episode(with_state):
    def ask(**parameters):
        return with_state.post(INFER, tensor([[0, 0, 0]], parameters=parameters))

    assert ask()[0] == 400
    assert ask(sequence_id=5)[0] == 400
    counts = [
        ask(sequence_id=5, sequence_start=start)[1]["outputs"][0]["data"][1]
        for start in (True, False, False, True, False)
    ]
    assert counts == [1, 2, 3, 1, 2]
    assert ask(sequence_id=5, sequence_end=True)[0] == 200
    assert ask(sequence_id=5)[0] == 400
    session = [with_state.post(INVOKE, {"observation": [0, 0, 0], "session": "a"}) for _ in "12"]
    assert [answer["action"][1] for _, answer in session] == [1, 2]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"observation": [0, 0]}, "observation"),
        ({"observation": [[0, 0, 0]]}, "observation"),
        ({"observation": ["a", "b", "c"]}, "observation"),
        ({"observation": [True, False, True]}, "observation"),
        ({"observation": [0, float("nan"), 0]}, "observation"),
        ({"observation": [0, 1e300, 0]}, "observation"),
        ({"observation": [0, 101, 0]}, "observation"),
        ({"observation": [0, 0, 0], "wrong": 1}, "wrong"),
        ({"observation": [0, 0, 0], "reward": "much"}, "reward"),
        ({"observation": [0, 0, 0], "action_masks": [True]}, "action_masks"),
        ({"observation": [0, 0, 0], "session": ""}, "session"),
        ({"instances": []}, "instances"),
        ({"instances": [[0, 0, 0]] * 65}, "instances"),
        ("nothing", "body"),
        ("[" * 100_000, "body"),
        ({}, "observation"),
    ],
)
def test_what_is_wrong_is_named_with_rule_and_fix(server, body, field):
    status, answer = server.post(INVOKE, body)
    assert status == 400
    assert answer["field"] == field
    assert answer["rule"]
    assert answer["fix"]


def test_the_third_entry_has_no_upper_bound(server):
    assert server.post(INVOKE, {"observation": [0, 0, 5000]})[0] == 200


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"datatype": "BYTES"},
        {"shape": [1, -3]},
        {"shape": [2, 3]},
        {"shape": [1, 3, 1]},
        {"parameters": {"binary_data_size": 12}},
        {"parameters": 3},
        {"data": [1, "x", 2]},
    ],
)
def test_a_wrong_tensor_is_refused(server, change):
    body = tensor([[0, 0, 0]])
    body["inputs"][0] |= change
    status, answer = server.post(INFER, body)
    assert status == 400
    assert answer["field"].startswith("inputs")


def test_too_much_is_refused_before_it_is_read(server):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    connection.putrequest("POST", INVOKE)
    connection.putheader("Content-Length", str(2**24 + 1))
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400
    assert json.loads(answer.read())["field"] == "body"
    connection.close()


def test_unknown_names_are_not_found(server):
    assert server.ask("GET", "/v2/models/other")[0] == 404
    assert server.ask("GET", "/v2/models/tiny/versions/9")[0] == 404
    assert server.ask("GET", "/elsewhere")[0] == 404
    assert server.ask("GET", INVOKE)[0] == 405


def test_pages_of_other_sites_reach_nothing(server):
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        assert server.ask("GET", "/v2", headers=headers)[0] == 403
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus):
        server.connect(origin="http://evil.example")


def test_the_page_needs_nothing_from_elsewhere(server):
    page = server.ask("GET", "/docs")[2].decode()
    assert INVOKE in page
    assert "http://" not in page.replace(f"http://127.0.0.1:{server.port}", "")
    assert "https://" not in page
    paths = json.loads(server.ask("GET", "/openapi.json")[2])["paths"]
    assert "/v2/models/{model}/infer" in paths


def test_prometheus_reads_the_metrics(server):
    parser = pytest.importorskip("prometheus_client.parser")
    server.post(INVOKE, {"observation": [0, 0, 0]})
    families = {f.name: f for f in parser.text_string_to_metric_families(server.metrics())}
    assert sum(s.value for s in families["rlzoo_plus_decisions"].samples) >= 1
    assert families["rlzoo_plus_decision_seconds"].type == "histogram"
    assert families["rlzoo_plus_serving_info"].samples[0].labels["name"] == "tiny"


def test_an_override_decides_next_and_is_released(server):
    socket, hello = server.connect()
    say(socket, observation=[1, 2, 3])
    asked = {"word": "action", "action": [5.0, 6.0], "session": hello["session"]}
    assert server.post("/v1/override", asked)[0] == 200
    answer = say(socket, observation=[0, 0, 0])
    assert (answer["action"], answer["source"]) == ([5, 6], "override")
    assert server.post(INVOKE, {"observation": [0, 0, 0]})[1]["source"] == "policy"
    assert dispatch.run("override", [server.url, "stop"]) == 0
    assert say(socket, observation=[1, 1, 1])["action"] == [0, 0]
    assert dispatch.run("override", [server.url, "hold"]) == 0
    assert say(socket, observation=[2, 2, 2])["action"] == [0, 0]
    assert dispatch.run("override", [server.url, "action", "[9999, 0]"]) == 2
    assert dispatch.run("override", [server.url, "release"]) == 0
    assert say(socket, observation=[1, 1, 1])["action"] == [3, 1]
    assert dispatch.run("override", [server.url, "stop", "--for", "0.2"]) == 0
    assert say(socket, observation=[1, 1, 1])["source"] == "override"
    until(lambda: say(socket, observation=[1, 1, 1])["source"] == "policy")
    socket.close()


def test_an_override_of_one_session_finds_it_or_is_refused(server, capsys):
    ask = {"observation": [1, 1, 1], "session": "arm1"}
    own = server.post(INVOKE, ask)[1]
    tensors = tensor([[1, 1, 1]], parameters={"sequence_id": 7, "sequence_start": True})
    assert server.post(INFER, tensors)[0] == 200
    for name in ("arm1", own["session"], "7"):
        assert dispatch.run("override", [server.url, "stop", "--session", name]) == 0
        answer = server.post(INVOKE, ask)[1]
        assert answer["source"] == ("override" if name != "7" else "policy")
        assert dispatch.run("override", [server.url, "release", "--session", name]) == 0
        assert server.post(INVOKE, ask)[1]["source"] == "policy"
    capsys.readouterr()
    assert dispatch.run("override", [server.url, "stop", "--session", "deadbeef"]) != 0
    assert "no such session is open" in capsys.readouterr().err
    # What was said for all is not taken back for one.
    assert dispatch.run("override", [server.url, "stop"]) == 0
    assert dispatch.run("override", [server.url, "release", "--session", "arm1"]) != 0
    assert "said for all sessions" in capsys.readouterr().err
    assert server.post(INVOKE, ask)[1]["source"] == "override"
    assert dispatch.run("override", [server.url, "release"]) == 0


def test_under_load_an_override_counts_at_the_next_decision_of_everyone(server):
    stop, wrong, counts = threading.Event(), [], [0] * 8
    taken = threading.Event()

    def loop(number):
        socket, _ = server.connect()
        while not stop.is_set():
            was_taken = taken.is_set()
            source = say(socket, observation=[1, 2, 3])["source"]
            counts[number] += was_taken
            if was_taken and source != "override":
                wrong.append(source)

    threads = [threading.Thread(target=loop, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    try:
        assert server.post("/v1/override", {"word": "hold"})[0] == 200
        taken.set()
        until(lambda: min(counts) > 5)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        server.post("/v1/override", {"word": "release"})
    assert wrong == []


def test_no_choice_is_taken_for_a_stop(tmp_path):
    with Server(write_policy(tmp_path / "choices", choices=True)) as server:
        assert server.post(INVOKE, {"observation": [0, 9, 0]})[1]["action"] == 1
        assert server.post("/v1/override", {"word": "stop"})[0] == 400
        assert server.post("/v1/override", {"word": "hold"})[0] == 200
        socket, _ = server.connect()
        assert say(socket, observation=[0, 9, 0])["status"] == 409
        assert server.post("/v1/override", {"word": "action", "action": 3})[0] == 400
        assert server.post("/v1/override", {"word": "action", "action": 2})[0] == 200
        assert say(socket, observation=[0, 9, 0])["action"] == 2


def test_a_client_that_asks_too_often_must_wait(tmp_path):
    with Server(write_policy(tmp_path / "tiny"), "--rate", "5") as server:
        answers = [server.ask("POST", INVOKE, {"observation": [0, 0, 0]}) for _ in range(20)]
        refused = [headers for status, headers, _ in answers if status == 429]
        assert len(refused) >= 10
        assert all(int(headers["retry-after"]) >= 1 for headers in refused)


def test_a_session_that_asks_too_early_gets_its_last_action(tmp_path):
    with Server(write_policy(tmp_path / "tiny"), "--interval", "0.5") as server:
        socket, _ = server.connect()
        first = say(socket, observation=[1, 2, 3])
        second = say(socket, observation=[4, 5, 6])
        assert second["action"] == first["action"]
        assert (second["source"], second["reason"]) == ("fallback", "interval")
        until(lambda: say(socket, observation=[4, 5, 6])["action"][0] == 15)


def test_other_machines_need_a_token_and_tls(tmp_path, capsys, monkeypatch):
    folder = str(write_policy(tmp_path / "tiny"))
    monkeypatch.delenv(TOKEN, raising=False)
    assert dispatch.run("serve", [folder, "--host", "0.0.0.0"]) == 2
    assert TOKEN in capsys.readouterr().err
    monkeypatch.setenv(TOKEN, "a-token-of-some-length")
    assert dispatch.run("serve", [folder, "--host", "0.0.0.0"]) == 2
    assert "--tls-cert" in capsys.readouterr().err
    monkeypatch.setenv(TOKEN, "short")
    assert dispatch.run("serve", [folder]) == 2


def test_with_a_token_only_who_has_it_is_served(tmp_path):
    token = "a-token-of-some-length"
    words = (write_policy(tmp_path / "tiny"), "--host", "0.0.0.0", "--behind-proxy", "--rate", "2")
    with Server(*words, **{TOKEN: token}) as server:
        right = {"Authorization": f"Bearer {token}", "X-Forwarded-For": "1.1.1.1, 2.2.2.2"}
        assert server.ask("GET", "/v2/health/ready")[0] == 200
        assert server.ask("GET", "/metrics")[0] == 401
        assert server.ask("GET", "/metrics", headers={"Authorization": "Bearer no"})[0] == 401
        asked = [server.ask("POST", INVOKE, {"observation": [0, 0, 0]}, right) for _ in range(9)]
        assert {status for status, _, _ in asked} == {200, 429}
        # The proxy's word counts, and not what the client says before it.
        right["X-Forwarded-For"] = "2.2.2.2, 3.3.3.3"
        assert server.ask("POST", INVOKE, {"observation": [0, 0, 0]}, right)[0] == 200


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_with_a_certificate_it_speaks_tls(tmp_path):
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-nodes", "-newkey", "rsa:2048", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    words = ("--host", "0.0.0.0", "--tls-cert", certificate, "--tls-key", key)
    token = "a-token-of-some-length"
    with Server(write_policy(tmp_path / "tiny"), *words, **{TOKEN: token}) as server:
        assert server.url.startswith("https://")
        trusted = ssl.create_default_context(cafile=certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=trusted)
        headers = {"Authorization": f"Bearer {token}"}
        body = {"observation": [1, 1, 1]}
        status, _, data = server.ask("POST", INVOKE, body, headers, connection)
        assert (status, json.loads(data)["action"]) == (200, [3, 1])
        connection.close()
    assert "Traceback" not in server.output


def test_a_certificate_that_is_none_is_refused(tmp_path, capsys):
    folder = write_policy(tmp_path / "tiny")
    words = [str(folder), "--port", "0", "--tls-cert", str(folder / "deploy.json")]
    assert dispatch.run("serve", words) == 2
    assert dispatch.run("serve", [*words, "--tls-key", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("error: --tls-cert") == 2


def test_sigterm_answers_what_had_begun(tmp_path):
    folder = write_policy(tmp_path / "tiny")
    with Server(folder, "--audit", tmp_path / "audit") as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        data = json.dumps({"observation": [1, 1, 1]}).encode()
        connection.putrequest("POST", INVOKE)
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders()
        connection.send(data[:5])
        until(lambda: server.ask("GET", "/ping")[0] == 200)
        codes = []
        ending = threading.Thread(target=lambda: codes.append(server.end()))
        ending.start()
        until(lambda: _refuses(server))
        connection.send(data[5:])
        assert json.loads(connection.getresponse().read())["action"] == [3, 1]
        connection.close()
        ending.join()
    assert codes == [0]
    assert "Traceback" not in server.output


def _refuses(server):
    try:
        return server.ask("GET", "/ping")[0] == 503
    except OSError:
        return True


def test_binary_tensors_of_a_foreign_length_are_refused(server):
    head = tensor([[0, 0, 0]])
    del head["inputs"][0]["data"]
    head["inputs"][0]["parameters"] = {"binary_data_size": 12}
    text, values = json.dumps(head).encode(), struct.pack("<3f", 1, 2, 3)

    def ask(data, length):
        headers = {"Inference-Header-Content-Length": str(length)}
        return server.ask("POST", INFER, data, headers)

    assert ask(text + values, len(text))[0] == 200
    assert ask(text + values[:8], len(text))[0] == 400
    assert ask(text + values + b"1", len(text))[0] == 400
    assert ask(text + values, 10**6)[0] == 400
    assert ask(text + values, -1)[0] == 400
