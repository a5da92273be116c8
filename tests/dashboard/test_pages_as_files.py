"""`dashboard --export`, and notes that take part in nothing."""

import json
import re

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dashboard import main
from rlzoo_plus.dashboard.annotations import Annotations, read_annotations, write_annotations
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.web_server import FILES
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.store.contract import open_store
from rlzoo_plus.store.mirror import RunMirror


@pytest.fixture
def export(folder, tmp_path, monkeypatch):
    (tmp_path / "x.js").write_text("// plotly")
    monkeypatch.setattr("rlzoo_plus.commands.dashboard.plotly_file", lambda: tmp_path / "x.js")
    return lambda out: main([str(folder), "--export", str(out)])


def received(file):
    """Return the data that a script hands to the page."""
    name, text = re.fullmatch(r'receive\("([\w-]+)",(.*)\);\n', file.read_text(), re.S).groups()
    assert file.name == f"{name}.js"
    return json.loads(text)


def test_pages_are_written_with_their_data(export, folder, tmp_path, capsys):
    (folder / "c" / "videos").mkdir()
    (folder / "c" / "videos" / "best.mp4").write_bytes(b"video")
    out = tmp_path / "pages"
    assert export(out) == 0
    assert "index.html   (7 runs)" in capsys.readouterr().out
    assert {file.name for file in out.iterdir() if file.is_file()} >= {*FILES, "plotly.min.js"}
    assert 'name="token" content=""' in (out / "index.html").read_text()
    runs = {run["path"]: run for run in received(out / "data" / "runs.js")["runs"]}
    assert len(runs) == 7
    details = received(out / "data" / f"run-{runs['c']['id']}.js")
    assert details["series"] == {
        "mean_return": [[20, 60], [2.0, 6.0]],
        "train/loss": [[10, 20], [1.0, 0.5]],
    }
    assert details["clock"]["hours"][0]
    assert (out / "videos" / runs["c"]["id"] / "best.mp4").read_bytes() == b"video"
    assert received(out / "data" / f"sweep-{runs['sweeps/first/r0']['parent']}.js")["n"] == 4


def test_an_export_may_be_written_again_but_nothing_else_is_replaced(export, folder, tmp_path):
    out = tmp_path / "pages"
    export(out)
    stale = out / "data" / "run-0.js"
    stale.write_text("old")
    export(out)
    assert not stale.exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="was not written by --export"):
        export(tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_names_and_links_of_a_run_do_no_harm_in_an_export(export, folder, tmp_path):
    evil = "</script><script>alert(1)</script>\u2028"
    config = (folder / "c" / "config.yaml").read_text()
    (folder / "c" / "config.yaml").write_text(config.replace("ppo", json.dumps(evil)))
    (tmp_path / "secret.mp4").write_bytes(b"secret")
    (folder / "c" / "videos").mkdir()
    (folder / "c" / "videos" / "best.mp4").symlink_to(tmp_path / "secret.mp4")
    out = tmp_path / "pages"
    export(out)
    runs = {run["path"]: run for run in received(out / "data" / "runs.js")["runs"]}
    assert "<script>" in runs["c"]["algo"]
    for file in out.rglob("*"):
        assert file.is_dir() or b"secret" not in file.read_bytes()
    # Names are in scripts only, as text in ASCII.
    assert (out / "data" / "runs.js").read_text().isascii()
    assert "alert(1)" not in (out / "index.html").read_text()


def test_a_folder_without_runs_is_not_exported(tmp_path, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.commands.dashboard.plotly_file", lambda: tmp_path / "x.js")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="no runs to export"):
        main([str(tmp_path / "empty"), "--export", str(tmp_path / "pages")])


def test_notes_are_read_as_they_were_written(folder):
    run, notes = RunDir(folder / "c"), Annotations(True, ("paper",), "two\nlines")
    assert read_annotations(run) == Annotations()
    write_annotations(run, notes)
    assert read_annotations(run) == notes
    (run.path / ".notes.json").write_text('{"star": "yes"}')
    assert read_annotations(run) == Annotations()


def test_notes_are_sent_to_no_store_and_change_nothing_else(folder, tmp_path):
    run = RunDir(folder / "c")
    before = {file.name: file.read_bytes() for file in run.path.iterdir()}
    write_annotations(run, Annotations(True, ("paper",), "a note"))
    after = {file.name: file.read_bytes() for file in run.path.iterdir()}
    assert after.pop(".notes.json")
    assert after == before
    store = open_store(tmp_path / "store")
    RunMirror(store, "c", run.path).push()
    sent = {entry.name for entry in store.list("runs/")}
    assert "runs/c/config.yaml" in sent
    assert not any("notes" in name for name in sent)


def test_notes_change_no_run_in_the_index(folder):
    first = Source(folder).runs(all_of_them=True)
    write_annotations(RunDir(folder / "c"), Annotations(star=True))
    again = Source(folder).runs(all_of_them=True)
    known = [run_id for run_id, run in first.items() if run.summary.state != "running"]
    assert [again[run_id] for run_id in known] == [first[run_id] for run_id in known]
