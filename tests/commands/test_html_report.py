"""`rlzoo-plus report`: one file, nothing from outside of it, and nothing in it that runs."""

import base64
import json
import re
from html.parser import HTMLParser

import pytest
from support.written_runs import write_run

from rlzoo_plus.commands.dispatch import run as run_verb
from rlzoo_plus.commands.report import main
from rlzoo_plus.dashboard import html_report as module

pytestmark = pytest.mark.usefixtures("here")
EVIL = '"><script>alert(1)</script><img src=http://evil.example/x onerror=alert(1)>'


class Page(HTMLParser):
    """Collects the elements, their attributes and the text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_data(self, data):
        self.text += data


def report(tmp_path, *arguments):
    assert main([*arguments, "--out", "x.html"]) == 0
    return Page((tmp_path / "x.html").read_text())


def write_sweep(root, n=5):
    for algo, score in (("ppo", 100.0), ("sac", 200.0)):
        for seed in range(n):
            write_run(root, algo, "hopper", seed, score + seed)


def test_a_report_has_curves_scores_comparison_and_provenance(tmp_path):
    write_sweep(tmp_path / "s")
    page = report(tmp_path, "s")
    for expected in ("10 runs: 10 finished", "sac is higher", "202 [200.7, 203.7]", "abc123"):
        assert expected in page.text
    assert page.tags.count("img") == 3
    assert "algo.name" in page.text


def test_everything_is_in_the_file_and_nothing_runs(tmp_path):
    write_sweep(tmp_path / "s")
    page = report(tmp_path, "s")
    policy = dict((n, v) for t, n, v in page.attributes if t == "meta")["content"]
    assert "script" not in page.tags
    for _, name, value in page.attributes:
        assert not name.startswith("on")
        if name in ("src", "href"):
            assert value.startswith("data:")
    assert ("meta", "http-equiv", "Content-Security-Policy") in page.attributes
    text = (tmp_path / "x.html").read_text()
    assert "default-src 'none'" in text
    assert "script-src" not in text
    assert policy
    pictures = [base64.b64decode(found) for found in re.findall(r'svg\+xml;base64,([^"]+)"', text)]
    assert all(b"<script" not in picture for picture in pictures)


def test_names_and_messages_from_outside_are_text(tmp_path):
    write_run(tmp_path / "s", seed=0, about_env={"name": EVIL}, state="failed", message=EVIL)
    write_run(tmp_path / "s", seed=1, about_env={"name": EVIL})
    write_run(tmp_path / "s", seed=2, name="s<b>2", hyperparams={"note": EVIL})
    (tmp_path / "s" / "sweep.json").write_text(
        json.dumps({"jobs": [{"state": "failed", "path": "a<i>b", "reason": EVIL}, 3]})
    )
    page = report(tmp_path, "s")
    assert not {"script", "b", "i"} & set(page.tags)
    assert all(value.startswith("data:") for _, name, value in page.attributes if name == "src")
    assert page.text.count("<script>alert(1)") >= 3


def test_failures_are_told_with_their_reason(tmp_path):
    write_sweep(tmp_path / "s", 2)
    write_run(tmp_path / "s", seed=7, state="failed", message="out of memory")
    with write_run(tmp_path / "s", seed=8, state="running").lock as lock:
        # A lock that is free again: the process has ended.
        lock.acquire()
    write_run(tmp_path / "s", seed=9).config_file.write_text("{")
    text = report(tmp_path, "s").text
    for reason in ("out of memory", "its process ended without a word", "config.yaml cannot be"):
        assert reason in text


def test_videos_of_the_best_and_the_worst_seed_are_embedded_up_to_a_size(tmp_path, monkeypatch):
    for seed in range(3):
        run = write_run(tmp_path / "s", seed=seed, score=100.0 + seed)
        run.videos.mkdir()
        (run.videos / "best.mp4").write_bytes(b"video" + bytes([seed]) * (10 if seed else 500))
    monkeypatch.setattr(module, "LARGEST_VIDEO_BYTES", 100)
    page = report(tmp_path, "s")
    sources = [value for tag, name, value in page.attributes if (tag, name) == ("video", "src")]
    (video,) = [base64.b64decode(source.partition(",")[2]) for source in sources]
    assert video == b"video" + b"\x02" * 10
    assert "best seed (2): 102" in page.text
    assert "worst seed (0): 100: best.mp4 is left out: has 505 bytes" in page.text


def test_a_linked_video_is_not_read(tmp_path):
    run = write_run(tmp_path / "s")
    run.videos.mkdir()
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (run.videos / "best.mp4").symlink_to(tmp_path / "secret.mp4")
    report(tmp_path, "s")
    text = (tmp_path / "x.html").read_text()
    assert base64.b64encode(b"secret").decode() not in text
    assert "is left out" in text


def test_secrets_are_blanked(tmp_path):
    for seed, secret in enumerate(("hunter2-first", "hunter2-other")):
        write_run(tmp_path / "s", seed=seed, about_env={"kwargs": {"api_token": secret}})
    report(tmp_path, "s")
    assert "hunter2" not in (tmp_path / "x.html").read_text()


def test_runs_without_anything_yet_make_a_report(tmp_path):
    write_run(tmp_path / "s", steps=(), state="interrupted")
    assert "No run has an evaluation yet." in report(tmp_path, "s").text


def test_another_suffix_is_refused(tmp_path, capsys):
    write_sweep(tmp_path / "s", 1)
    assert run_verb("report", ["s", "--out", "x.pdf"]) == 2
    assert "ends in .html" in capsys.readouterr().err
