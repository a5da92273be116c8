"""The server of the dashboard: for this machine only, its data, and attacks on it."""

import http.client
import json
import re
import signal
import socket

import pytest
from support.processes import PLUS, commands_in

from rlzoo_plus.commands.dashboard import main
from rlzoo_plus.dashboard.web_server import FILES, PAGE, plotly_file
from rlzoo_plus.errors import ConfigError


@pytest.fixture
def ask(server):
    """Return what asks the server: status, headers and body of an answer."""

    def ask(path, method="GET", body=None, host=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        sent["Host"] = host or f"127.0.0.1:{server.server_port}"
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        found = answer.status, dict(answer.getheaders()), answer.read()
        connection.close()
        return found

    return ask


@pytest.fixture
def run(ask):
    """Return the id of the run that failed."""
    runs = json.loads(ask("/data/runs")[2])["runs"]
    return next(run["id"] for run in runs if run["path"] == "c")


def test_the_page_and_its_files_are_served(ask, server):
    status, headers, body = ask("/")
    assert status == 200
    assert server.token.encode() in body
    assert "script-src 'self'" in headers["Content-Security-Policy"]
    assert "unsafe-eval" not in headers["Content-Security-Policy"]
    named = set(re.findall(r'(?:src|href)="([\w.]+)"', body.decode()))
    assert named | {"index.html"} == set(FILES)
    assert all(ask(f"/{name}")[0] == 200 for name in (*FILES, "plotly.min.js"))


def test_every_file_of_the_page_is_served():
    assert {file.name for file in PAGE.iterdir()} == set(FILES)


def test_it_listens_on_this_machine_only(server):
    assert server.server_address[0] == "127.0.0.1"


def test_data_is_json(ask, run):
    assert json.loads(ask("/data/metrics")[2])[0] == "mean_return"
    series = json.loads(ask(f"/data/series?metric=train%2Floss&ids={run}")[2])
    assert series == {run: [[10, 20], [1.0, 0.5]]}
    assert json.loads(ask(f"/data/run/{run}")[2])["id"] == run
    assert json.loads(ask(f"/data/clock?axis=hours&ids={run}")[2])[run]


@pytest.mark.parametrize(
    "path",
    [
        *("/../pyproject.toml", "/..%2f..%2fetc/passwd", "/page/index.html", "//etc/passwd"),
        *("/data/run/..%2f..", "/data/run/../../etc/passwd", "/data/clock?axis=../x", "/data/"),
        *("/videos/../../etc/passwd", "/videos/RUN/../status.json", "/videos/RUN/..%2fstatus.json"),
        *("/videos/RUN//etc/passwd", "/videos/RUN/linked.mp4", "/videos/RUN/notes.txt"),
        *("/data/study/..", "/notes/RUN", "/data/run/%00"),
    ],
)
def test_no_path_leads_out_of_the_runs(ask, run, folder, tmp_path, path):
    videos = folder / "c" / "videos"
    videos.mkdir()
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (videos / "linked.mp4").symlink_to(tmp_path / "secret.mp4")
    (videos / "notes.txt").write_text("secret")
    status, _, body = ask(path.replace("RUN", run))
    assert status in (404, 500)
    assert b"secret" not in body
    assert b"root:" not in body
    assert set(json.loads(body)) == {"error"}


def test_a_folder_of_videos_that_is_a_link_is_not_followed(ask, run, folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "best.mp4").write_bytes(b"secret")
    (folder / "c" / "videos").symlink_to(tmp_path / "elsewhere")
    assert json.loads(ask(f"/data/run/{run}")[2])["videos"] == []
    assert ask(f"/videos/{run}/best.mp4")[0] == 404


def test_a_video_is_sent_in_parts(ask, run, folder):
    (folder / "c" / "videos").mkdir()
    (folder / "c" / "videos" / "best.mp4").write_bytes(bytes(range(100)))
    status, headers, body = ask(f"/videos/{run}/best.mp4")
    assert (status, headers["Content-Type"], len(body)) == (200, "video/mp4", 100)
    status, headers, body = ask(f"/videos/{run}/best.mp4", Range="bytes=10-19")
    assert (status, body) == (206, bytes(range(10, 20)))
    assert headers["Content-Range"] == "bytes 10-19/100"
    assert ask(f"/videos/{run}/best.mp4", Range="bytes=90-")[2] == bytes(range(90, 100))


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil:80"])
@pytest.mark.parametrize("path", ["/", "/data/runs"])
def test_another_name_of_this_machine_is_refused(ask, host, path):
    status, _, body = ask(path, host=host)
    assert (status, json.loads(body)) == (403, {"error": "this host is not served"})


@pytest.mark.parametrize("host", ["localhost:9000", "127.0.0.1:1", "[::1]:8501", "localhost"])
def test_a_forwarded_port_is_served(ask, host):
    assert ask("/data/metrics", host=host)[0] == 200


def test_other_sites_get_nothing(ask):
    assert ask("/data/runs", Sec_Fetch_Site="cross-site")[0] == 403
    assert ask("/plotly.min.js", Sec_Fetch_Site="cross-site")[0] == 403
    assert "Access-Control-Allow-Origin" not in ask("/data/runs")[1]


NOTES = {"star": True, "tags": ["good", "good", " paper "], "note": "<script>alert(1)</script>"}


def test_notes_are_written_with_the_token_of_the_page(ask, run, server, folder):
    origin = f"http://127.0.0.1:{server.server_port}"
    status, _, _ = ask(
        f"/notes/{run}", "POST", json.dumps(NOTES), X_Token=server.token, Origin=origin
    )
    assert status == 200
    wanted = {"star": True, "tags": ["good", "paper"], "note": NOTES["note"]}
    assert json.loads((folder / "c" / ".notes.json").read_text()) == wanted
    runs = json.loads(ask("/data/runs")[2])["runs"]
    found = next(each for each in runs if each["id"] == run)
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 403),
        ({"X_Token": "guess"}, 403),
        ({"X_Token": "TOKEN", "Origin": "http://evil.example"}, 403),
        ({"X_Token": "TOKEN", "Origin": "null"}, 403),
        ({"X_Token": "TOKEN", "Sec_Fetch_Site": "cross-site"}, 403),
        ({"X_Token": "TOKEN", "host": "evil.example"}, 403),
        ({"X_Token": "TOKEN"}, 200),
    ],
)
def test_nobody_else_writes_notes(ask, run, server, folder, headers, status):
    sent = {name: value.replace("TOKEN", server.token) for name, value in headers.items()}
    assert ask(f"/notes/{run}", "POST", json.dumps(NOTES), **sent)[0] == status
    assert (folder / "c" / ".notes.json").exists() == (status == 200)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", '{"star": 1}', '{"tags": "a"}', '{"tags": [1]}', '{"path": "x"}'),
        *('{"tags": ["a,b"]}', '{"note": "\\u001b[2J"}', '{"note": 1}', '{"star": NaN}'),
        json.dumps({"tags": ["x" * 41]}),
        json.dumps({"tags": [str(n) for n in range(21)]}),
        json.dumps({"note": "x" * 4001}),
        json.dumps({"note": "x" * 2**17}),
    ],
)
def test_what_are_no_notes_is_refused(ask, run, server, folder, content):
    status, _, body = ask(f"/notes/{run}", "POST", content, X_Token=server.token)
    assert status == 400
    assert set(json.loads(body)) == {"error"}
    assert not (folder / "c" / ".notes.json").exists()


def test_notes_are_not_written_through_a_link(ask, run, server, folder, tmp_path):
    target = tmp_path / "target.json"
    target.write_text("{}")
    (folder / "c" / ".notes.json").symlink_to(target)
    assert ask(f"/notes/{run}", "POST", json.dumps(NOTES), X_Token=server.token)[0] != 200
    assert target.read_text() == "{}"
    for path in ("/notes/../c", "/notes/nothing", "/data/runs"):
        assert ask(path, "POST", "{}", X_Token=server.token)[0] == 404


def test_a_silly_request_does_not_end_the_server(ask, server):
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nHost: " + b"x" * 70_000 + b"\r\n\r\n")
        raw.recv(100)
    assert ask("/data/metrics")[0] == 200


def test_pages_never_turn_texts_into_html():
    risky = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
    )
    for name in FILES:
        text = (PAGE / name).read_text()
        assert risky.findall(text) == []
        # Nothing comes from elsewhere, and no handler is in a text.
        assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|\son\w+=\"", text) == []


def test_charts_have_no_button_that_sends_them_to_a_service():
    text = (PAGE / "charts.js").read_text()
    assert re.findall(r"newPlot\(.*, (\w+)\);", text) == ["CONFIG"] * text.count("newPlot(")
    (listed,) = re.findall(r"modeBarButtons: \[\[(.*?)\]\]", text)
    assert "Cloud" not in listed


def test_mistakes_are_told(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.commands.dashboard.plotly_file", lambda: tmp_path / "x.js")
    with pytest.raises(ConfigError, match="not a folder"):
        main([str(tmp_path / "missing")])
    with pytest.raises(ConfigError, match="65535"):
        main([str(folder), "--port", "70000"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="is taken"):
            main([str(folder), "--port", str(taken.getsockname()[1])])


def test_without_plotly_the_extra_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"rlzoo-plus\[dashboard\]"):
        plotly_file()


def test_the_port_answers_once_the_address_is_printed(folder, tmp_path, monkeypatch, capsys):
    (tmp_path / "x.js").write_text("")
    monkeypatch.setattr("rlzoo_plus.commands.dashboard.plotly_file", lambda: tmp_path / "x.js")
    answers = []

    def tell(text):
        print(text)
        address = text.split()[0].removeprefix("http://")
        with socket.create_connection(address.split(":"), timeout=5):
            answers.append(True)

    monkeypatch.setattr("rlzoo_plus.commands.dashboard.tell", tell)

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("rlzoo_plus.dashboard.web_server.DashboardServer.serve_forever", stopped)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert main([str(folder), "--port", str(port)]) == 0
    assert answers == [True]
    assert f"http://127.0.0.1:{port} " in capsys.readouterr().out


@pytest.mark.training
def test_the_address_is_told_at_once_in_a_pipe_and_ctrl_c_ends_the_server(tmp_path):
    pytest.importorskip("plotly")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    (tmp_path / "outputs").mkdir()
    with commands_in(tmp_path) as start:
        process = start(*PLUS, "dashboard", "--port", port)
        assert f"http://127.0.0.1:{port}" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
