"""The index of runs: what is read again, and what a damaged run looks like."""

import json

import pytest
from support.written_runs import write_run

from rlzoo_plus.analysis import index
from rlzoo_plus.analysis.index import RunIndex, load_runs
from rlzoo_plus.artifacts.run_dir import RunDir


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "_FEWEST_KEPT", 1)


@pytest.fixture
def reads(monkeypatch):
    """Return the paths of the configurations that are read."""
    seen = []
    read = RunDir.read_config
    monkeypatch.setattr(RunDir, "read_config", lambda run: seen.append(run.path) or read(run))
    return seen


def test_what_has_not_changed_is_read_once_even_by_the_next_process(tmp_path, reads):
    runs = [write_run(tmp_path / "runs", seed=seed) for seed in range(3)]
    first = load_runs([tmp_path / "runs"])
    assert len(reads) == 3
    assert load_runs([tmp_path / "runs"]) == first
    assert len(reads) == 3
    runs[1].config_file.write_text(runs[1].config_file.read_text() + "n_envs: 4\n")
    again = load_runs([tmp_path / "runs"])
    assert len(reads) == 4
    assert again[1].values["n_envs"] == 4
    assert again[1].variant != again[0].variant


def test_new_evaluations_are_seen_and_removed_runs_go(tmp_path, reads):
    runs = [write_run(tmp_path / "runs", seed=seed, state="running") for seed in range(2)]
    kept = RunIndex([tmp_path / "runs"])
    assert [len(entry.evaluations) for entry in kept.refresh()] == [4, 4]
    with runs[0].evaluations_file.open("a") as file:
        file.write('{"step": 5000, "mean_return": 7.0}\n')
    assert [len(entry.evaluations) for entry in kept.refresh()] == [5, 4]
    assert len(reads) == 2
    runs[1].config_file.unlink()
    runs[1].status_file.unlink()
    assert len(kept.refresh()) == 1


def test_a_run_whose_process_ends_changes_its_state(tmp_path):
    run = write_run(tmp_path / "runs", state="running")
    kept = RunIndex([tmp_path / "runs"])
    with run.lock as lock:
        lock.acquire()
        assert kept.refresh()[0].summary.state == "running"
    (entry,) = kept.refresh()
    assert (entry.summary.state, entry.reason) == ("died", "its process ended without a word")


def test_a_damaged_or_failed_run_is_an_entry_with_its_reason(tmp_path):
    good = write_run(tmp_path / "runs", seed=0)
    broken = write_run(tmp_path / "runs", seed=1)
    broken.config_file.write_text("{")
    write_run(tmp_path / "runs", seed=2, state="failed", message="out of \x1b[2J memory")
    lost = write_run(tmp_path / "runs", seed=3)
    lost.config_file.unlink()
    found = {entry.summary.path.name: entry for entry in load_runs([tmp_path / "runs"])}
    assert found[good.path.name].reason == ""
    assert found["s1"].summary.state == found["s3"].summary.state == "damaged"
    assert "config.yaml cannot be read" in found["s1"].reason
    assert found["s3"].reason == "config.yaml is missing"
    assert found["s2"].reason == "out of \\x1b[2J memory"


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 2, "runs": {"PATH": {"stamps": 3}}}'])
def test_a_damaged_cache_is_written_anew(tmp_path, content):
    run = write_run(tmp_path / "runs")
    expected = load_runs([tmp_path / "runs"])
    (file,) = (tmp_path / "cache" / "rlzoo_plus" / "index").iterdir()
    file.write_text(content.replace("PATH", str(run.path)))
    assert load_runs([tmp_path / "runs"]) == expected
    assert json.loads(file.read_text())["version"] == index._VERSION


def test_without_a_cache_everything_still_works(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    write_run(tmp_path / "runs")
    assert len(load_runs([tmp_path / "runs"])) == 1


def test_reading_stops_after_the_budget_and_goes_on(tmp_path):
    for seed in range(4):
        folder = tmp_path / "runs" / f"s{seed}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text("algo: {name: ppo}\nenv: {name: reach}\n")
        (folder / "status.json").write_text('{"state": "finished"}')
    kept = RunIndex([tmp_path / "runs"])
    assert kept.refresh(budget_s=-1.0) == []
    assert kept.n_left == 4
    assert len(kept.refresh()) == 4
    assert kept.n_left == 0
    # What is known needs no time.
    assert len(RunIndex([tmp_path / "runs"]).refresh(budget_s=-1.0)) == 4


def test_a_few_runs_leave_nothing_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_run(tmp_path / "runs")
    load_runs([tmp_path / "runs"])
    assert not (tmp_path / "cache").exists()
