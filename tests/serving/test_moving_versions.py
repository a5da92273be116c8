"""A name that moves is followed, whatever it names; a shadow decides beside and delays nothing."""

import json
import sys
import threading
import time
from pathlib import Path

import pytest
from support import serving
from support.serving import Server, observations, say, until, write_policy

from rlzoo_plus.artifacts.atomic import write_atomic
from rlzoo_plus.commands import dispatch
from rlzoo_plus.serving.audit_reading import verify

INVOKE = "/invocations"
PROGRAM = (serving.__file__,)


def move(alias, version):
    write_atomic(alias, f"{version}\n")


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
def test_no_request_is_lost_while_a_name_moves_and_one_version_is_broken(tmp_path):
    for version in range(1, 6):
        write_policy(tmp_path / f"v{version}", float(version))
    write_policy(tmp_path / "broken")
    (tmp_path / "broken" / "policy.onnx").write_bytes(b"broken")
    alias = tmp_path / "alias"
    move(alias, "v1")
    with Server(alias, "--audit", tmp_path / "audit", program=PROGRAM) as server:
        found = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=ask_many, args=(server, 2500, some), daemon=True)
            for some in found
        ]
        for thread in threads:
            thread.start()
        for turn in range(20):
            move(alias, "broken" if turn == 9 else f"v{turn % 5 + 1}")
            time.sleep(0.4)
        for thread in threads:
            thread.join(300)
        move(alias, "v3")
        until(lambda: server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "v3")
        assert "Traceback" not in server.output
        assert server.end() == 0
    answers = [answer for some in found for answer in some]
    assert len(answers) == 10_000
    assert {status for status, _ in answers} == {200}
    for _, rows in answers:
        assert len({version for version, _ in rows}) == 1
        assert all(version == f"v{number:.0f}" for version, number in rows)
    assert len({rows[0][0] for _, rows in answers}) >= 3
    assert verify(tmp_path / "audit").mistakes == []


def test_a_version_that_fails_is_told_and_the_old_one_goes_on(tmp_path):
    for name, options in {"v1": {}, "wide": {"n": 4}, "v2": {"version": 2.0}}.items():
        write_policy(tmp_path / name, **options)
    alias = tmp_path / "alias"
    move(alias, "v1")
    with Server(alias, program=PROGRAM) as server:
        for turn, (wrong, why) in enumerate([("missing", "deploy.json"), ("wide", "other")]):
            move(alias, wrong)
            failures = f"alias_load_failures_total {turn + 1}"
            until(lambda failures=failures: failures in server.metrics())
            assert f'version="v1",refused="{wrong}"' in server.metrics()
            assert why in server.metrics()
            assert server.post(INVOKE, {"observation": [0, 0, 0]})[1]["version"] == "v1"
        socket, _ = server.connect()
        start = time.monotonic()
        move(alias, "v2")
        until(lambda: say(socket, observation=[0, 0, 0])["version"] == "v2")
        # Generous: this machine is shared.
        assert time.monotonic() - start < 10
        assert "refused" not in server.metrics()
        move(alias, "")
        until(lambda: "alias_load_failures_total 3" in server.metrics())


def test_an_episode_ends_with_the_version_it_began_with(tmp_path):
    for version in (1, 2):
        write_policy(tmp_path / f"v{version}", has_state=True)
    alias = tmp_path / "alias"
    move(alias, "v1")
    with Server(alias, program=PROGRAM) as server:
        socket, _ = server.connect()
        say(socket, observation=[0, 0, 0])
        move(alias, "v2")
        until(lambda: "alias_moves_total 1" in server.metrics())
        answer = say(socket, observation=[0, 0, 0])
        assert (answer["version"], answer["action"][1]) == ("v1", 2)
        answer = say(socket, observation=[0, 0, 0], reset=True)
        assert (answer["version"], answer["action"][1]) == ("v2", 1)


def serve_with_shadow(tmp_path, *more):
    write_policy(tmp_path / "v1")
    write_policy(tmp_path / "next", 101.0)
    move(tmp_path / "alias", "v1")
    move(tmp_path / "candidate", "next")
    words = ("--shadow", tmp_path / "candidate", "--shadow-file", tmp_path / "shadow.jsonl")
    return Server(tmp_path / "alias", *words, *more, program=PROGRAM)


def test_a_shadow_is_compared_and_never_answers(tmp_path, capsys):
    file = tmp_path / "shadow.jsonl"
    with serve_with_shadow(tmp_path) as server:
        socket, _ = server.connect()
        for row in observations(30):
            assert say(socket, observation=row.tolist())["action"][1] == 1
        until(lambda: file.exists() and len(file.read_text().splitlines()) == 30)
        assert server.end() == 0
    # Without enough of it, there is no verdict.
    assert dispatch.run("shadow-report", [str(file)]) == 1
    text = capsys.readouterr().out
    assert "candidate next beside v1: 30 decisions" in text
    assert "agrees within 5% of the range: 100.0%" in text
    assert "action[1]: mean difference 5.00%" in text
    assert "not enough" in text


@pytest.mark.parametrize("way", ["sleeps", "crashes"])
def test_a_candidate_that_sleeps_or_crashes_delays_nothing(tmp_path, way):
    code = {
        "sleeps": "import sys, time\nfor line in sys.stdin: time.sleep(1)",
        "crashes": "import os\nos.abort()",
    }[way]
    command = json.dumps([sys.executable, "-c", code])
    with serve_with_shadow(tmp_path, "--shadow-command", command) as server:
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
