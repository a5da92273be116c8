"""The dashboard: what it shows of runs, and that the page is for this machine only."""

import json
import os
import socket
import sys
import time
from pathlib import Path

import pytest
import yaml

from rlzoo_plus.analysis.dashboard import view
from rlzoo_plus.analysis.dashboard.launch import command_of
from rlzoo_plus.analysis.index import RunIndex
from rlzoo_plus.commands.dashboard import main
from rlzoo_plus.errors import ConfigError

APP = Path(view.__file__).with_name("app.py")


def write_run(folder, algo="ppo", seed=0, state="finished", gamma=0.99, **status):
    folder.mkdir(parents=True)
    config = {
        **{"algo": {"name": algo, "hyperparams": {"gamma": gamma}}, "env": {"name": "reach"}},
        **{"seed": seed, "n_timesteps": 100},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    (folder / "status.json").write_text(json.dumps({"state": state, **status}))
    rows = [{"step": step, "mean_return": step / 10 + seed} for step in (20, 60)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def folder(tmp_path):
    now = time.time()
    write_run(tmp_path / "a", seed=1, started_at=now - 50)
    write_run(tmp_path / "b", "sac", seed=2, gamma=0.98, started_at=now - 40)
    write_run(tmp_path / "c", state="failed", message="NaN in the weights", started_at=now - 30)
    alive = {"pid": os.getpid(), "started_at": now - 20, "updated_at": now}
    write_run(tmp_path / "d", state="running", **alive)
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "config.yaml").write_text("*")
    (tmp_path / "e" / "status.json").write_text("{}")
    return tmp_path


@pytest.fixture
def runs(folder):
    return view.Runs(RunIndex([folder], keep=False)).look()


def test_the_page_comes_before_all_runs_are_read(folder):
    runs = view.Runs(RunIndex([folder], keep=False))
    assert (runs.look(budget_s=-1.0), runs.index.n_left) == ([], 5)
    assert (len(runs.look(view.READ_ON_S)), runs.index.n_left) == (5, 0)


def test_the_table_has_every_run_with_the_reason_of_failures(runs, folder):
    columns = view.table(runs, folder)
    assert columns["run"] == ["d", "c", "b", "a", "e"]
    assert columns["state"] == ["running", "failed", "finished", "finished", "damaged"]
    assert columns["best"][:4] == [6.0, 6.0, 8.0, 7.0]
    assert columns["reason"][1] == "NaN in the weights"
    assert "config.yaml" in columns["reason"][4]


@pytest.mark.parametrize(
    ("chosen", "text", "found"),
    [
        ({"algo": ["sac"]}, "", "b"),
        ({"state": ["failed", "running"], "algo": []}, "", "dc"),
        ({}, "nan in", "c"),
        ({}, "algo.hyperparams.gamma=0.98", "b"),
        ({"algo": ["sac"]}, "algo.hyperparams.gamma = 0.99", ""),
    ],
)
def test_filters(chosen, text, found, runs):
    assert [run.summary.path.name for run in view.filtered(runs, chosen, text)] == list(found)


def test_settings_that_differ_are_shown_side_by_side(runs, folder):
    a, b = (next(r for r in runs if r.summary.path.name == name) for name in "ab")
    columns = view.settings([a, b], folder)
    shown = dict(
        zip(columns["setting"], zip(*list(columns.values())[1:], strict=True), strict=True)
    )
    assert shown == {"algo.name": ("ppo", "sac"), "algo.hyperparams.gamma": ("0.99", "0.98")}
    assert view.settings([a], folder)["setting"] == sorted(a.values)


def test_progress_of_a_run_that_trains(folder, runs):
    rows = [{"step": 10 * k, "ts": time.time() + k, "key": "x", "value": 1.0} for k in (1, 2, 5)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "d" / "metrics.jsonl").write_text(text)
    ((path, done, text),) = view.running(runs)
    assert Path(path).name == "d"
    assert done == 0.6
    assert text == "60 of 100 steps, 10 steps/s, 4s left, mean return 6.0"


def test_curves_have_a_row_for_each_value(runs, folder):
    a, b = (next(r for r in runs if r.summary.path.name == name) for name in "ab")
    rows = view.curve_rows([a, b], "mean_return", folder)
    found = [(row["run"], row["step"], row["value"]) for row in rows]
    names = ("ppo on reach, seed 1 (a)", "sac on reach, seed 2 (b)")
    assert found == [
        *((names[0], step, step / 10 + 1) for step in (20, 60)),
        *((names[1], step, step / 10 + 2) for step in (20, 60)),
    ]
    assert view.metrics_of([a, b]) == ["mean_return"]
    assert len({row["dash"] for row in view.curve_rows([a] * 21, "mean_return", folder)}) == 2


def test_videos_never_lead_out_of_the_run(folder, runs, tmp_path_factory):
    secret = tmp_path_factory.mktemp("elsewhere") / "secret.mp4"
    secret.write_bytes(b"x")
    videos = folder / "a" / "videos"
    videos.mkdir()
    for name in ("final", "best"):
        (videos / f"{name}.mp4").write_bytes(b"x")
    (videos / "0.mp4").symlink_to(secret)
    run = next(run for run in runs if run.summary.path.name == "a")
    assert [path.name for path in view.videos(run)] == ["best.mp4", "final.mp4"]


def test_the_server_is_for_this_machine_and_sends_nothing(tmp_path):
    pytest.importorskip("streamlit")
    command = command_of(tmp_path, 8600)
    assert "--server.address=127.0.0.1" in command
    assert "--browser.gatherUsageStats=false" in command
    assert command[-1] == str(tmp_path)


def test_mistakes_are_told(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="not a folder"):
        main([str(tmp_path / "missing")])
    with pytest.raises(ConfigError, match="65535"):
        main([str(tmp_path), "--port", "70000"])
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="is taken"):
            main([str(tmp_path), "--port", str(taken.getsockname()[1])])
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=r"rlzoo-plus\[dashboard\]"):
        command_of(tmp_path, 8600)


def test_the_page_shows_runs_filters_them_and_draws_what_is_selected(
    folder, monkeypatch, tmp_path_factory
):
    testing = pytest.importorskip("streamlit.testing.v1")
    monkeypatch.setattr(sys, "argv", ["app", str(folder)])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    page = testing.AppTest.from_file(str(APP), default_timeout=60).run()
    assert not page.exception
    assert list(page.dataframe[0].value["run"]) == ["d", "c", "b", "a", "e"]
    # The curves of all are shown while one trains.
    assert [box.label for box in page.selectbox] == ["metric"]
    page.multiselect[1].select("sac").run()
    assert not page.exception
    assert list(page.dataframe[0].value["run"]) == ["b"]
