"""The verb `prefer`: clips of a run, a page that asks about them, answers that no kill loses."""

import base64
import hashlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import rlzoo_plus
from rlzoo_plus.commands import dispatch
from rlzoo_plus.preferences.clip_page import ClipServer
from rlzoo_plus.preferences.clip_videos import ClipVideos
from rlzoo_plus.preferences.preference_folder import ANSWER_FILE, Preferences

RUN = "trained/cartpole_bullet"
FEW = ("--pairs", 12, "--clip-steps", 8)


def prefer(*words):
    return dispatch.run("prefer", [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with twelve pairs of clips, of which a rater has answered all."""
    folder = tmp_path_factory.mktemp("prefer") / "prefs"
    assert prefer(RUN, "--out", folder, *FEW, "--rater", "synthetic") == 0
    return folder


def test_clips_are_of_every_quality_and_hold_the_ends_of_episodes(folder):
    (clips,) = Preferences(folder).rounds
    assert clips.about["env"] == "robots/CartPoleBalance-v0"
    assert clips.pairs.shape == (12, 2)
    assert {len(clip.rows) for clip in clips.clips} == {8}
    # Of a pole that has fallen, and of one that has stood for ten seconds.
    lengths = [len(clip.own_rewards) for clip in clips.clips]
    assert min(lengths) < 60
    assert max(lengths) == 500
    for clip in clips.clips:
        assert np.array_equal(clip.rows[:, -1:], clip.actions[-8:])


def test_the_second_time_pairs_are_asked_about_that_the_first_model_is_unsure_of(folder, capsys):
    assert prefer(RUN, "--out", folder, *FEW, "--rater", "synthetic:mistake=0.1,seed=3") == 0
    assert "to ask where it is unsure" in capsys.readouterr().out
    found = Preferences(folder)
    assert [len(clips.pairs) for clips in found.rounds] == [12, 12]
    assert len(found.given) == 24
    assert prefer(folder, "--fit", folder.parent / "model") == 0
    assert re.search(
        r"learned from \d+ answers, .*% of \d+ held-out answers", capsys.readouterr().out
    )


def test_another_task_and_wrong_arguments_are_refused(folder, tmp_path, capsys):
    def refused(*words):
        assert prefer(*words) == 2
        told = capsys.readouterr()
        assert "plays" not in told.out
        return told.err

    swing_up = ("trained/cartpole_swingup", "--out", folder, *FEW, "--rater", "synthetic")
    assert "holds clips of robots/CartPoleBalance-v0, not of robots/CartPoleSwingUp" in refused(
        *swing_up
    )
    (tmp_path / "mine.txt").write_text("kept")
    assert "holds no preferences" in refused(RUN, "--out", tmp_path, *FEW)
    assert "Name one" in refused(RUN)
    assert "Name one" in refused(RUN, "--out", "a", "--fit", "b")
    assert "at most" in refused(RUN, "--out", "a", "--pairs", 5000)
    assert "at least 10" in refused(tmp_path / "none", "--fit", tmp_path / "model")


def test_no_answer_that_was_acknowledged_is_lost_by_kill_9(folder, tmp_path):
    copy = tmp_path / "prefs"
    (copy).mkdir()
    os.symlink(folder / "clips-001", copy / "clips-001")
    program = (
        "import sys; from pathlib import Path\n"
        "from rlzoo_plus.preferences.preference_folder import Preferences\n"
        "found = Preferences(Path(sys.argv[1])); clips = found.rounds[0]\n"
        "while True:\n"
        "    for n in range(12):\n"
        "        found.answer(clips, n, 'left', 'person'); print(n, flush=True)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, copy], stdout=subprocess.PIPE)
    told = [int(writer.stdout.readline()) for _ in range(30)]
    writer.send_signal(signal.SIGKILL)
    told += [int(line) for line in writer.stdout.read().splitlines() if line.isdigit()]
    writer.wait()
    rows = [json.loads(line) for line in (copy / ANSWER_FILE).read_bytes().splitlines()]
    assert [row["pair"] for row in rows][: len(told)] == told
    # A line cut short does not damage the next one.
    with (copy / ANSWER_FILE).open("ab") as file:
        file.write(b'{"clips": "')
    found = Preferences(copy)
    found.answer(found.rounds[0], 5, "equal", "person")
    assert Preferences(copy).given[found.rounds[0].digest, 5] == "equal"


@pytest.mark.parametrize(
    "row",
    [
        {"pair": 12}, {"pair": -1}, {"pair": True}, {"answer": "both"}, {"clips": "x"},
        {"clips": []}, {"answer": ["left"]},
    ],
    ids=str,
)  # fmt: skip
def test_an_answer_about_no_pair_is_ignored_with_a_warning(folder, tmp_path, caplog, row):
    copy = tmp_path / "prefs"
    copy.mkdir()
    os.symlink(folder / "clips-001", copy / "clips-001")
    digest = Preferences(copy).rounds[0].digest
    whole = {"clips": digest, "pair": 3, "answer": "left", **row}
    (copy / ANSWER_FILE).write_text(json.dumps(whole) + "\nnot JSON\n")
    assert Preferences(copy).given == {}
    assert "1 answers" in caplog.text


@pytest.fixture
def page(folder, tmp_path):
    """Ask the server of a page, and return status, fields and body of the answer."""
    copy = tmp_path / "prefs"
    copy.mkdir()
    os.symlink(folder / "clips-001", copy / "clips-001")
    found = Preferences(copy)
    videos = ClipVideos(copy / "videos", found.rounds[0], rlzoo_plus.Run.open(RUN))
    server = ClipServer(0, found, found.rounds[0], videos)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def ask(path, body=None, **fields):
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
        names = {name.replace("_", "-"): value for name, value in fields.items()}
        connection.request("GET" if body is None else "POST", path, body, names)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    ask.server = server
    yield ask
    server.shutdown()
    server.server_close()
    videos.close()


def test_the_page_asks_shows_both_clips_and_goes_on_to_the_next_pair(page):
    status, fields, body = page("/")
    assert status == 200
    script = body.split(b"<script>")[1].split(b"</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in fields["Content-Security-Policy"]
    token = re.search(rb'name="token" content="([^"]+)"', body)[1].decode()
    asked = json.loads(page("/question")[2])
    assert (asked["pair"], asked["of"], asked["answered"]) == (0, 12, 0)
    for clip in asked["clips"]:
        status, fields, video = page(f"/video/{clip}")
        assert (status, fields["Content-Type"]) == (200, "image/gif")
        assert video.startswith(b"GIF8")
    told = json.dumps({"pair": 0, "answer": "equal"})
    assert page("/answer", told, X_Token=token)[0] == 200
    assert json.loads(page("/question")[2])["pair"] == 1
    assert json.loads(page("/question?pair=0")[2])["answer"] == "equal"
    assert page.server.preferences.given[page.server.clips.digest, 0] == "equal"


def test_other_sites_cannot_answer_and_wrong_answers_are_refused(page):
    token = page.server.token
    good = json.dumps({"pair": 0, "answer": "left"})
    assert page("/answer", good)[0] == 403
    assert page("/answer", good, X_Token="guessed")[0] == 403
    assert page("/answer", good, X_Token=token, Origin="http://elsewhere.example")[0] == 403
    assert page("/question", Host="elsewhere.example")[0] == 403
    assert page("/answer", "x" * 70_000, X_Token=token)[0] == 400
    for body in ("[]", '{"pair": 0}', '{"pair": 99, "answer": "left"}',
                 '{"pair": 0, "answer": "best"}', '{"pair": [], "answer": "left"}'):  # fmt: skip
        assert page("/answer", body, X_Token=token)[0] == 400
    for path in ("/question?pair=99", "/video/99", "/video/-1", "/video/../../etc", "/etc"):
        assert page(path)[0] == 404
    assert page.server.preferences.given == {}
    assert page.server.server_address[0] == "127.0.0.1"
