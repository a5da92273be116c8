"""Where the runs of `sweep=...` lie, from the command line to the jobs, and back by `status`."""

import json
from pathlib import Path

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands import dispatch
from rlzoo_plus.sweeps import multirun


@pytest.fixture
def placed(in_process, monkeypatch):
    """Return a function: `sweep` or nothing to the jobs that a command would have run."""
    ran = []
    monkeypatch.setattr(multirun, "PRELOAD", ())
    monkeypatch.setattr(multirun, "run_jobs", lambda jobs, *_, **__: ran.extend(jobs) or 0)

    def place(*words):
        command = ["-m", "algo=ppo", "env=cartpole_bullet", "tuned=none", "seed=0,1", *words]
        assert dispatch.run("train", command) == 0
        return ran

    return place


@pytest.mark.parametrize(
    ("given", "place"),
    [
        (None, "outputs/sweeps/default"),
        ("mine", "outputs/sweeps/mine"),
        ("./some/../where", "where"),
        ("../beside", "../beside"),
    ],
)
def test_a_sweep_lies_where_its_name_or_its_path_says(placed, in_process, tmp_path, given, place):
    words = [] if given is None else [f"sweep={given}"]
    (tmp_path / "some").mkdir()
    jobs = placed(*words)
    wanted = (tmp_path / place).resolve()
    assert [job.sweep.resolve() for job in jobs] == [wanted] * 2
    assert all(Path(job.config.run_dir).resolve().is_relative_to(wanted) for job in jobs)
    assert len((wanted / "ledger.jsonl").read_text().splitlines()) == 2
    assert (wanted / "summary.md").is_file()


@pytest.mark.parametrize("given", ["mine", "{}/mine"])
def test_status_finds_a_sweep_by_what_it_was_started_with(placed, tmp_path, capsys, given):
    given = given.format(tmp_path)
    first, _ = placed(f"sweep={given}")
    RunDir(first.path).write_status("finished", n_timesteps=first.config.n_timesteps)
    capsys.readouterr()
    assert dispatch.run("sweep", ["status", given, "--json"]) == 0
    state = json.loads(capsys.readouterr().out)
    assert state["counts"] == {"waiting": 1, "running": 0, "done": 1, "failed": 0}
