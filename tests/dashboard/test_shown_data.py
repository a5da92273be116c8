"""What the dashboard shows of runs, their metrics, sweeps and studies."""

import json

import numpy as np
import pytest
from support.studies import add_trial, make_study

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.dashboard import source_of
from rlzoo_plus.dashboard.runs_data import run_data, runs_data, variant_name
from rlzoo_plus.dashboard.series_data import clock_data, metrics_data, series_data
from rlzoo_plus.dashboard.source import Source
from rlzoo_plus.dashboard.studies_data import study_data, sweep_data
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.local_pages import as_json


def by_path(source):
    return {run["path"]: run for run in runs_data(source)["runs"]}


def test_all_runs_are_there_with_names_and_reasons(source):
    runs = by_path(source)
    assert {path: run["state"] for path, run in runs.items()} == {
        **{f"sweeps/first/r{number}": "finished" for number in range(4)},
        **{"c": "failed", "d": "running", "e": "damaged"},
    }
    assert runs["sweeps/first/r0"]["name"] == "sac gamma=0.99"
    assert runs["sweeps/first/r2"]["name"] == "sac gamma=0.9"
    assert runs["c"]["reason"] == "NaN in the weights"
    assert "config.yaml" in runs["e"]["reason"]
    assert (runs["sweeps/first/r0"]["kind"], runs["c"]["kind"]) == ("sweep", "folder")


def test_runs_of_a_variant_share_its_settings(source):
    data = runs_data(source)
    runs = {run["path"]: run for run in data["runs"]}
    first, same, other = (runs[f"sweeps/first/r{number}"]["variant"] for number in (0, 1, 2))
    assert first == same != other
    assert data["variants"][other]["algo.hyperparams.gamma"] == 0.9
    assert "algo.hyperparams.gamma" in data["keys"]


def test_a_running_run_says_how_far_it_is(source):
    run = by_path(source)["d"]
    assert (run["steps"], run["of"]) == (60, 100)


def test_the_first_page_need_not_wait_for_all_runs(folder, monkeypatch):
    monkeypatch.setattr("rlzoo_plus.dashboard.source._FIRST_S", -1.0)
    source = Source(folder)
    data = runs_data(source)
    assert (data["runs"], data["left"]) == ([], 7)
    monkeypatch.setattr("rlzoo_plus.dashboard.source._FIRST_S", 60.0)
    assert (len(runs_data(source)["runs"]), source.index.n_left) == (7, 0)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("", "sac"),
        ("learning_rate=0.001 net_arch=[256,256]", "sac lr=1e-3, net_arch=[256,256]"),
        ("learning_rate=0.00030 gamma=0.98", "sac lr=3e-4, gamma=0.98"),
        ("ent_coef=auto clip=nan", "sac ent_coef=auto, clip=nan"),
        ("actor.learning_rate=0.0012345678", "sac actor.lr=1.235e-3"),
    ],
)
def test_names_are_as_a_person_would_say_them(label, name):
    assert variant_name("sac", label) == name


def test_metrics_are_those_of_evaluations_and_logs(source):
    assert metrics_data(source) == ["mean_return", "train/loss"]


def test_series_have_steps_and_values(source):
    run = by_path(source)["sweeps/first/r0"]["id"]
    assert series_data(source, [run], "mean_return") == {run: [[20, 60], [3.0, 7.0]]}
    assert series_data(source, [run], "train/loss") == {run: [[10, 20], [1.0, 0.5]]}
    assert series_data(source, [run], "no/such") == {}


def test_a_series_goes_on_with_its_file(source):
    run = by_path(source)["d"]
    before = series_data(source, [run["id"]], "train/loss")[run["id"]]
    with (source.folder / "d" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 50, "key": "train/loss", "value": 7.0}) + "\n")
        file.write(json.dumps({"step": 60, "key": "train/loss", "value": None}) + "\n{torn")
    after = series_data(source, [run["id"]], "train/loss")[run["id"]]
    assert (before[0], after) == ([10, 20], [[10, 20, 50], [1.0, 0.5, 7.0]])


def test_a_long_series_keeps_its_peaks_and_ends(source):
    run = by_path(source)["d"]["id"]
    values = np.sin(np.arange(5000) / 300)
    values[2345] = 99.0
    rows = [
        json.dumps({"step": step, "key": "train/loss", "value": float(value)})
        for step, value in enumerate(values)
    ]
    (source.folder / "d" / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    steps, found = series_data(source, [run], "train/loss")[run]
    assert len(steps) <= 300
    assert (steps[0], steps[-1]) == (0, 4999)
    assert found[steps.index(2345)] == 99.0


def test_a_clock_says_where_steps_lie_in_hours(source):
    run = by_path(source)["sweeps/first/r0"]["id"]
    steps, hours = clock_data(source, [run], "hours")[run]
    assert hours == sorted(hours)
    assert len(steps) == len(hours) > 0
    assert clock_data(source, [run], "episodes") == {}


def test_a_run_has_settings_metrics_and_commands_but_no_secrets(folder):
    config = (folder / "c" / "config.yaml").read_text()
    (folder / "c" / "config.yaml").write_text(config + "tracker: {api_key: hunter2hunter2}\n")
    (folder / "c" / "command.txt").write_text("rlzoo-plus train api_key=hunter2hunter2\n")
    source = Source(folder)
    details = run_data(source, by_path(source)["c"]["id"])
    assert details["settings"]["algo.hyperparams.gamma"] == "0.99"
    assert details["metrics"] == ["mean_return", "train/loss"]
    assert details["commands"][0].endswith("outputs/c")
    assert "hunter2" not in as_json(details).decode() + as_json(runs_data(source)).decode()


def test_an_unknown_run_is_said_to_be_none(source):
    with pytest.raises(ConfigError, match="no run nothing"):
        run_data(source, "nothing")


def test_numbers_that_json_does_not_know_become_null():
    assert as_json({"a": float("nan"), "b": [float("inf")]}) == b'{"a":null,"b":[null]}'


def test_what_mattered_in_a_sweep(source):
    pytest.importorskip("optuna")
    parent = by_path(source)["sweeps/first/r0"]["parent"]
    data = sweep_data(source, parent)
    assert (data["keys"], data["n"], data["problem"]) == (["algo.hyperparams.gamma"], 4, "")
    assert data["importance"] == {"algo.hyperparams.gamma": 1.0}


def test_a_sweep_without_optuna_says_so(source, monkeypatch):
    def missing(*_):
        raise ConfigError("a study needs Optuna")

    monkeypatch.setattr("rlzoo_plus.dashboard.studies_data._importance", missing)
    assert "Optuna" in sweep_data(source, by_path(source)["sweeps/first/r0"]["parent"])["problem"]


def test_a_study_has_its_trials(tmp_path):
    pytest.importorskip("optuna")
    root = tmp_path / "outputs"
    made = make_study(root / "studies" / "mine")
    for value in (10.0, 30.0, 50.0, 20.0, 40.0):
        add_trial(made, [value], reports=[(1, value / 2), (20, value)])
    add_trial(made, failed="no memory")
    source = Source(root)
    ((study, folder),) = source.studies().items()
    data = study_data(source, study)
    assert (data["name"], data["problem"]) == ("studies/mine", "")
    assert [trial["values"] for trial in data["trials"]][:3] == [[10.0], [30.0], [50.0]]
    assert data["best"][0] == 2
    assert data["trials"][5]["reason"] == "no memory"
    assert sum(data["importance"].values()) == pytest.approx(1.0, abs=0.01)
    (folder / "study.json").write_text("{")
    assert "study.json" in study_data(source, study)["problem"]


def test_a_study_in_a_linked_folder_is_not_read(folder, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "study.json").write_text("{}")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "own").mkdir()
    (folder / "own" / "study.json").write_text("{}")
    assert list(Source(folder).studies().values()) == [folder / "own"]


def test_a_trial_is_named_by_its_number(folder):
    (folder / "studies" / "mine" / "trials").mkdir(parents=True)
    (folder / "studies" / "mine" / "study.json").write_text("{}")
    path = folder / "studies" / "mine" / "trials" / "0012" / "s0"
    (folder / "c").rename(folder / "studies" / "mine" / "trials" / "0012")
    path.parent.rename(folder / "x")
    path.parent.mkdir()
    (folder / "x").rename(path)
    run = by_path(Source(folder))["studies/mine/trials/0012/s0"]
    assert (run["name"], run["kind"], run["folder"]) == ("trial 12", "study", "studies/mine")


def test_a_pruned_trial_is_no_interrupted_run(folder, write_run):
    ends = {"0003": "median at rung 5 of 20: 13.2", "0004": "stopped by SIGTERM"}
    for number, message in ends.items():
        path = folder / "studies" / "first" / "trials" / number / "s0"
        write_run(path, state="interrupted", message=message)
    (folder / "studies" / "first" / "study.json").write_text("{}")
    write_run(folder / "alone", state="interrupted", message="stopped by SIGINT")
    shown = Source(folder)
    shown.runs(all_of_them=True)
    told = {(run["state"], run["reason"]) for run in by_path(shown).values()}
    assert ("pruned", ends["0003"]) in told
    assert ("interrupted", ends["0004"]) in told
    assert ("interrupted", "stopped by SIGINT") in told


def test_what_the_columns_say_is_no_setting_too(source, folder):
    assert "algo.name" not in runs_data(source)["keys"]
    other = folder / "c" / "config.yaml"
    other.write_text(other.read_text() + "callbacks: [mine.Call]\n")
    config = folder / "sweeps" / "first" / "r0" / "config.yaml"
    config.write_text(config.read_text().replace("env:", "env:\n  id: Other-v1"))
    again = Source(folder)
    again.runs(all_of_them=True)
    # Two environments of one name: the name does not tell them apart.
    assert "env.id" in runs_data(again)["keys"]


def test_a_store_is_shown_by_its_light_copy(folder, tmp_path, monkeypatch):
    place = "rlzoo_plus.commands.dashboard"
    asked = []
    monkeypatch.setattr(f"{place}.folder_of", lambda _: (folder, "s3://bucket/here/runs"))
    monkeypatch.setattr(f"{place}.cached_run", lambda url: asked.append(url) or folder / "c")
    source = source_of("s3://bucket/here")
    data = runs_data(source)
    run = next(run for run in data["runs"] if run["path"] == "sweeps/first/r0")
    assert data["place"] == "s3://bucket/here/runs"
    details = run_data(source, run["id"])
    assert asked == ["s3://bucket/here/runs/sweeps/first/r0"]
    assert details["commands"][0] == "rlzoo-plus enjoy s3://bucket/here/runs/sweeps/first/r0"


def test_a_run_in_a_store_is_brought_when_its_page_is_opened(folder, tmp_path):
    (tmp_path / "whole").mkdir()
    (folder / "c").rename(tmp_path / "whole" / "c")
    (folder / "c").mkdir()
    for name in ("config.yaml", "status.json", "evaluations.jsonl"):
        (folder / "c" / name).write_bytes((tmp_path / "whole" / "c" / name).read_bytes())
    asked = []

    def bring(name):
        asked.append(name)
        return tmp_path / "whole" / name

    source = Source(folder, "s3://bucket/runs", lambda: None, bring)
    run = by_path(source)["c"]["id"]
    assert (source.directory(run), asked) == (RunDir(folder / "c"), [])
    details = run_data(source, run)
    assert details["metrics"] == ["mean_return", "train/loss"]
    assert details["facts"]["directory"] == "s3://bucket/runs/c"
    assert asked == ["c"]
