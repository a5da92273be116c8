"""`rlzoo-plus runs`."""

import json
import sys

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.commands.runs import main

pytestmark = pytest.mark.usefixtures("here")


def make_run(folder, name, algo="ppo", env="cartpole", best=100.0, started_at=1000.0):
    run = RunDir(folder / "outputs" / name)
    config = {"env": {"name": env}, "algo": {"name": algo}, "seed": 7, "n_timesteps": 100_000}
    run.start(config, "train", {})
    run.write_status("finished", num_timesteps=100_000, started_at=started_at)
    outcome = {"mean_return": best}
    run.write_result({"wall_time_s": 3725.0, "best": outcome, "final": outcome})
    return run


def paths_listed(capsys, *arguments):
    assert main([*arguments, "--json"]) == 0
    return [run["path"].rsplit("/", 1)[-1] for run in json.loads(capsys.readouterr().out)]


@pytest.fixture
def three(tmp_path):
    make_run(tmp_path, "a", algo="sac", best=5.0, started_at=1.0)
    make_run(tmp_path, "b", env="ant", best=500.0, started_at=2.0)
    broken = make_run(tmp_path, "c", best=50.0, started_at=3.0)
    broken.status_file.write_text("{")


def test_a_table_shows_what_became_of_a_run(tmp_path, capsys):
    make_run(tmp_path, "a", best=487.25)
    assert main([]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert " ".join(head.split()) == "state algo env seed steps best final time path"
    cells = ["finished", "ppo", "cartpole", "7", "100k/100k", "487.2", "487.2", "1h02m"]
    assert row.split() == [*cells, "outputs/a"]


def test_without_a_terminal_a_long_path_stays_whole_and_on_its_line(tmp_path, capsys):
    name = "a_very_long_name/" * 20 + "end"
    make_run(tmp_path, name)
    main([])
    assert capsys.readouterr().out.splitlines()[1].endswith(f"outputs/{name}")


@pytest.mark.parametrize("columns", ["40", "100", "400"])
def test_on_a_terminal_of_any_width_a_path_can_be_copied(tmp_path, capsys, monkeypatch, columns):
    make_run(tmp_path, "a" * 150)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", columns)
    main([])
    table = capsys.readouterr().out
    assert f"outputs/{'a' * 150}" in table
    assert "finished" in table


@pytest.mark.usefixtures("three")
def test_runs_are_sorted_newest_first_or_as_asked(capsys):
    # Without a readable status, nobody knows when it was started.
    assert paths_listed(capsys) == ["b", "a", "c"]
    assert paths_listed(capsys, "--sort", "best") == ["b", "c", "a"]
    assert paths_listed(capsys, "--sort", "algo") == ["b", "c", "a"]
    assert paths_listed(capsys, "--sort", "env") == ["b", "a", "c"]
    assert paths_listed(capsys, "--sort", "state") == ["b", "a", "c"]


@pytest.mark.usefixtures("three")
def test_runs_are_chosen_by_algorithm_environment_and_state(capsys):
    assert paths_listed(capsys, "--algo", "sac") == ["a"]
    assert paths_listed(capsys, "--env", "ant") == ["b"]
    assert paths_listed(capsys, "--state", "damaged") == ["c"]
    assert paths_listed(capsys, "--algo", "td3") == []


@pytest.mark.usefixtures("three")
def test_when_nothing_matches_it_says_what_there_is(capsys):
    assert main(["--algo", "td3"]) == 0
    answer = capsys.readouterr().out
    assert "algo: ppo, sac" in answer
    assert "state: damaged, finished" in answer


@pytest.mark.usefixtures("three")
def test_json_holds_every_field_in_plain_units(capsys):
    main(["outputs/a", "--json"])
    [run] = json.loads(capsys.readouterr().out)
    assert run == {
        "path": "outputs/a",
        "state": "finished",
        "algo": "sac",
        "env": "cartpole",
        "seed": 7,
        "steps": 100_000,
        "n_timesteps": 100_000,
        "best": 5.0,
        "final": 5.0,
        "wall_time_s": 3725.0,
        "started_at": 1.0,
        "reason": "",
    }


def test_without_any_run_it_says_what_to_type(tmp_path, capsys):
    assert main([]) == 0
    assert "rlzoo-plus train" in capsys.readouterr().out
    (tmp_path / "outputs").mkdir()
    assert main([]) == 0
    assert main(["--json"]) == 0
    assert capsys.readouterr().out.endswith("[]\n")


def test_help_says_what_it_does_and_gives_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "Example: rlzoo-plus runs" in capsys.readouterr().out
