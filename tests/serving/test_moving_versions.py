"""An alias that moves is followed, whatever it names; a shadow decides beside, delaying nothing."""

import json
import sys
import threading
import time
from pathlib import Path

import pytest
from support import serving
from support.registered import put_served
from support.serving import Server, observations, say, until

from rlzoo_plus.commands import dispatch
from rlzoo_plus.models.model_store import ModelStore
from rlzoo_plus.serving.audit_reading import verify

INVOKE = "/invocations"


class Registry:
    """A registry of one model, `tiny`, and servers of it."""

    def __init__(self, folder):
        self.folder = folder
        self.environ = {"RLZOO_MODELS": str(folder / "registry"), "XDG_CACHE_HOME": str(folder)}
        self.store = ModelStore(self.environ["RLZOO_MODELS"])

    def put(self, version, **options):
        put_served(self.store, self.folder / f"version-{version}", version, **options)

    def move(self, version, alias="production"):
        self.store.move("tiny", alias, version, action="promote", why="a test")

    def serve(self, *words, **options):
        return Server("tiny@production", *words, **options, **self.environ)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return Registry(tmp_path)


def ask_many(server, count, found):
    """Ask over one connection, and note each answer with its version."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    for _ in range(count):
        body = {"instances": [[0, 0, 0]] * 3}
        status, _, data = server.ask("POST", INVOKE, body, connection=connection)
        answers = json.loads(data).get("predictions", [])
        found.append((status, [(a["version"], a["action"][1]) for a in answers]))
    connection.close()


@pytest.mark.slow
def test_no_request_is_lost_while_an_alias_moves_and_one_version_is_broken(registry):
    for version in range(1, 6):
        registry.put(version)
    registry.put(6, is_broken=True)
    registry.move(1)
    with registry.serve("--audit", registry.folder / "audit") as server:
        found = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=ask_many, args=(server, 2500, some), daemon=True)
            for some in found
        ]
        for thread in threads:
            thread.start()
        for turn in range(20):
            registry.move(6 if turn == 9 else turn % 5 + 1)
            if turn == 9:
                until(lambda: 'refused="6"' in server.metrics(), 60)
            time.sleep(0.4)
        for thread in threads:
            thread.join(300)
        registry.move(3)
        until(lambda: server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "3")
        assert "Traceback" not in server.output
        assert server.end() == 0
    answers = [answer for some in found for answer in some]
    assert len(answers) == 10_000
    assert {status for status, _ in answers} == {200}
    for _, rows in answers:
        assert len({version for version, _ in rows}) == 1
        assert all(version == f"{number:.0f}" for version, number in rows)
    assert len({rows[0][0] for _, rows in answers}) >= 3
    assert verify(registry.folder / "audit").mistakes == []


def test_a_version_that_fails_is_told_and_the_old_one_goes_on(registry):
    registry.put(1)
    registry.put(2, is_broken=True)
    registry.put(3, n=4)
    registry.put(4)
    registry.move(1)
    with registry.serve() as server:
        for turn, (wrong, why) in enumerate([(2, "policy.onnx was changed"), (3, "other")]):
            registry.move(wrong)
            failures = f"alias_load_failures_total {turn + 1}"
            until(lambda failures=failures: failures in server.metrics())
            assert f'version="1",refused="{wrong}"' in server.metrics()
            assert why in server.metrics()
            assert server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "1"
        socket, _ = server.connect()
        start = time.monotonic()
        registry.move(4)
        until(lambda: say(socket, observation=[0, 0, 0])["version"] == "4")
        # Generous: this machine is shared.
        assert time.monotonic() - start < 10
        assert "refused" not in server.metrics()


def test_a_record_that_is_gone_is_told_and_nothing_older_is_served(registry, capsys, monkeypatch):
    for version in (1, 2):
        registry.put(version)
        registry.move(version)
    newest = registry.folder / "registry/models/tiny/aliases/production/000002.json"
    data = newest.read_bytes()
    with registry.serve() as server:
        assert server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "2"
        newest.unlink()
        until(lambda: "alias_load_failures_total 1" in server.metrics())
        assert "000002.json is gone or changed" in server.metrics()
        assert server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "2"
        # Nor does a server that starts now take the version before.
        monkeypatch.setenv("RLZOO_MODELS", registry.environ["RLZOO_MODELS"])
        assert dispatch.run("serve", ["tiny@production", "--port", "0"]) == 1
        assert "000002.json is gone, so an older version is named" in capsys.readouterr().err
        newest.write_bytes(data)
        until(lambda: "refused" not in server.metrics())


def test_an_episode_ends_with_the_version_it_began_with(registry):
    for version in (1, 2):
        registry.put(version, has_state=True)
    registry.move(1)
    with registry.serve() as server:
        socket, _ = server.connect()
        say(socket, observation=[0, 0, 0])
        registry.move(2)
        until(lambda: "alias_moves_total 1" in server.metrics())
        answer = say(socket, observation=[0, 0, 0])
        assert (answer["version"], answer["action"][1]) == ("1", 2)
        answer = say(socket, observation=[0, 0, 0], reset=True)
        assert (answer["version"], answer["action"][1]) == ("2", 1)


def serve_with_shadow(registry, **options):
    registry.put(1)
    registry.put(2, adds=99.0)
    registry.move(1)
    registry.move(2, "candidate")
    words = ("--shadow", "tiny@candidate", "--shadow-file", registry.folder / "shadow.jsonl")
    return registry.serve(*words, **options)


def test_a_shadow_is_compared_and_never_answers(registry, capsys):
    file = registry.folder / "shadow.jsonl"
    with serve_with_shadow(registry) as server:
        socket, _ = server.connect()
        for row in observations(30):
            assert say(socket, observation=row.tolist())["action"][1] == 1
        until(lambda: file.exists() and len(file.read_text().splitlines()) == 30)
        assert server.end() == 0
    # Without enough of it, there is no verdict.
    assert dispatch.run("shadow-report", [str(file)]) == 1
    text = capsys.readouterr().out
    assert "candidate 2 beside 1: 30 decisions" in text
    assert "agrees within 5% of the range: 100.0%" in text
    assert "action[1]: mean difference 5.00%" in text
    assert "not enough" in text


@pytest.mark.parametrize("way", ["sleeps", "crashes"])
def test_a_candidate_that_sleeps_or_crashes_delays_nothing(registry, way):
    code = {
        "sleeps": "import sys, time\nfor line in sys.stdin: time.sleep(1)",
        "crashes": "import os\nos.abort()",
    }[way]
    command = json.dumps([sys.executable, "-c", code])
    program = (serving.__file__, "--shadow-command", command)
    with serve_with_shadow(registry, program=program) as server:
        socket, _ = server.connect()
        start, count = time.monotonic(), 3000
        for _ in range(count):
            assert say(socket, observation=[0, 0, 0])["source"] == "policy"
        # One that waited for the candidate would take 3000 s, or end.
        assert time.monotonic() - start < 300
        until(lambda: "shadow_dropped_total 0" not in server.metrics())
        assert server.process.poll() is None


def test_a_report_of_no_shadow_is_an_error(tmp_path, capsys):
    assert dispatch.run("shadow-report", [str(tmp_path / "none.jsonl")]) == 2
    Path(tmp_path / "empty.jsonl").touch()
    assert dispatch.run("shadow-report", [str(tmp_path / "empty.jsonl")]) == 1
    assert "holds no comparison" in capsys.readouterr().out
