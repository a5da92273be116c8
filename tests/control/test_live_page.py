"""The page of a running session: what it shows, what its buttons do, and whom it serves."""

import base64
import hashlib
import http.client
import json
import os
import re
import threading
import time

import pytest

from rlzoo_plus.commands.watch_robot import main
from rlzoo_plus.control.attention import Attention
from rlzoo_plus.control.faults import Overridden
from rlzoo_plus.control.live_page import WatchServer, rows
from rlzoo_plus.errors import ConfigError

COLUMNS = ["time", "episode", "position/hip", "velocity/hip", "command/joint_torque/hip", "reward"]
ABOUT = {
    "run": "trained/<b>hip</b>",
    "env": {"id": "robots/Hip-v0"},
    "driver": "sim",
    "hz": 50.0,
    "dry_run": False,
    "safe_action": "hold",
    "robot": {
        "robot": "hip",
        "safe_actions": ["hold", "stop"],
        "sensors": {
            "joint_position": {"names": ["hip"], "unit": "rad", "lower": [-1.0], "upper": [2.0]},
            "joint_velocity": {"names": ["hip"], "unit": "rad/s", "lower": None, "upper": [9.0]},
        },
        "commands": {
            "joint_torque": {"names": ["hip"], "unit": "N m", "lower": [-5.0], "upper": [5.0]}
        },
    },
}


@pytest.fixture
def folder(tmp_path):
    """A session of two decisions."""
    folder = tmp_path / "session"
    folder.mkdir()
    (folder / "session.json").write_text(json.dumps(ABOUT))
    (folder / "log.csv").write_text(
        ",".join(COLUMNS) + "\n1.0,0.0,0.5,0.0,1.0,0.1\n1.02,0.0,0.6,5.0,nan,0.2\n"
    )
    (folder / "events.jsonl").write_text(
        '{"time": 1.0, "kind": "episode", "text": "time_limit"}\nnot JSON\n'
    )
    return folder


@pytest.fixture
def ask(folder):
    """Ask the server of the session, and return status, fields and body of the answer."""
    server = WatchServer(folder, 0)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def ask(path, method="GET", body=None, token=None, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        token = server.token if token is None else token
        sent = {"X-Token": token, **{k.replace("_", "-"): v for k, v in fields.items()}}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    yield ask
    server.shutdown()
    server.server_close()


def test_the_page_runs_its_own_script_and_no_other(ask):
    status, fields, page = ask("/")
    assert status == 200
    script = re.search(rb"<script>(.*)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in fields["Content-Security-Policy"]
    # What comes from the session is never taken for markup.
    assert b"innerHTML" not in script
    assert b"{{token}}" not in page


def test_what_a_session_is_of(ask):
    told = json.loads(ask("/about")[2])
    assert told["run"] == "trained/<b>hip</b>"
    assert told["columns"] == COLUMNS
    assert told["words"] == ["hold", "stop", "release"]
    assert told["limits"] == {
        "position/hip": [-1.0, 2.0],
        "velocity/hip": [None, 9.0],
        "command/joint_torque/hip": [-5.0, 5.0],
    }


def test_rows_follow_each_other_and_wait_for_whole_lines(ask, folder):
    told = json.loads(ask("/rows")[2])
    assert told["rows"] == [[1.0, 0.0, 0.5, 0.0, 1.0, 0.1], [1.02, 0.0, 0.6, 5.0, None, 0.2]]
    assert [event["kind"] for event in told["events"]] == ["episode"]
    with (folder / "log.csv").open("a") as log:
        log.write("1.04,0.0,0.7,")
    then = json.loads(ask(f"/rows?from={told['next']}")[2])
    assert (then["rows"], then["next"]) == ([], told["next"])
    with (folder / "log.csv").open("a") as log:
        log.write("5.0,1.0,0.3\n")
    then = json.loads(ask(f"/rows?from={told['next']}")[2])
    assert then["rows"] == [[1.04, 0.0, 0.7, 5.0, 1.0, 0.3]]
    assert json.loads(ask(f"/rows?from={10**9}")[2])["rows"] == []


def test_of_a_long_log_the_last_part_is_shown(folder):
    with (folder / "log.csv").open("a") as log:
        log.writelines(f"{n / 50},1.0,0.5,0.0,1.0,0.1\n" for n in range(100_000))
    shown = rows(folder, None)
    assert 1_000 < len(shown["rows"]) < 100_000
    assert shown["rows"][-1][0] == 99_999 / 50
    assert rows(folder, shown["next"])["rows"] == []


def test_how_a_session_stands(folder):
    assert rows(folder, None)["state"] == "running"
    before = time.time() - 30
    os.utime(folder / "log.csv", (before, before))
    assert rows(folder, None)["state"] == "no decision for 30 s"
    (folder / "report.json").write_text('{"ended": "stale sensor"}')
    assert rows(folder, None)["state"] == "ended: stale sensor"


def test_a_button_takes_the_next_decision(ask, folder):
    attention = Attention(folder, ("hold", "stop"))
    taken = []

    def loop():
        while not taken:
            try:
                attention()
            except Overridden as asked:
                taken.append(asked.action)
            time.sleep(0.002)

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    assert ask("/override", "POST", "stop")[0] == 200
    thread.join(5)
    assert taken == ["stop"]


def test_a_button_says_when_no_loop_obeys(ask, folder):
    status, _, body = ask("/override", "POST", "hold")
    assert status == 409
    assert "no loop has taken it" in json.loads(body)["error"]
    assert not (folder / "override").exists()


@pytest.mark.parametrize(
    ("path", "body", "fields", "status"),
    [
        ("/override", "jump", {}, 404),
        ("/override", "hold", {"token": "guessed"}, 403),
        ("/override", "hold", {"Origin": "http://elsewhere.org"}, 403),
        ("/override", "hold", {"Host": "elsewhere.org"}, 403),
        ("/override", "h" * 70_000, {}, 400),
        ("/other", "hold", {}, 404),
    ],
)
def test_nobody_else_moves_the_robot(ask, folder, path, body, fields, status):
    assert ask(path, "POST", body, **fields)[0] == status
    assert not (folder / "override").exists()


@pytest.mark.parametrize("path", ["/log.csv", "/../session/log.csv", "/about/"])
def test_nothing_else_is_served(ask, path):
    assert ask(path)[0] == 404


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("session.json", "{"),
        ("session.json", '{"robot": []}'),
        ("session.json", "[" * 100_000),
        ("log.csv", "time"),
    ],
)
def test_damaged_sessions_are_one_line(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(ConfigError, match="holds no session"):
        main([str(folder)])


def test_a_link_is_not_followed(folder, tmp_path):
    (folder / "log.csv").rename(tmp_path / "elsewhere.csv")
    (folder / "log.csv").symlink_to(tmp_path / "elsewhere.csv")
    with pytest.raises(ConfigError, match="holds no session"):
        WatchServer(folder, 0)


def test_without_a_session_it_says_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="no session"):
        main([])
    with pytest.raises(ConfigError, match="holds no session"):
        main(["nowhere"])
