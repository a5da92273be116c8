"""`rlzoo-plus study`."""

import json
import shlex

import pytest
from support.studies import add_trial, make_study, settings

from rlzoo_plus.artifacts.atomic import write_json
from rlzoo_plus.tuning.stored_study import NAME

FOLDER = "outputs/studies/mine"


@pytest.fixture
def study(in_process):
    """Return a study with trials of every kind; trial 2 is the best."""
    made = make_study(in_process / FOLDER)
    for value in (10.0, 30.0, 50.0, 20.0, 40.0):
        add_trial(made, [value], reports=[(rung, value * rung / 20) for rung in range(1, 21)])
    add_trial(made, pruned="below the median", reports=[(1, 1.0), (2, 2.0)])
    add_trial(made, failed="no memory\x1b[2J")
    add_trial(made, reports=[(1, 3.0), (5, 7.5)])
    return made


def test_show_tells_settings_counts_the_best_and_what_runs(answer, study):
    code, text = answer("study", "show", "mine")
    assert code == 0
    assert "1 running, 5 done, 1 pruned, 1 failed (of 50)" in text
    assert "maximize late_return" in text
    assert f"optuna-dashboard {FOLDER}/journal.log" in text
    assert "running: trial 7 (me): 25 % of a run, last evaluation 7.5" in text
    rows = [line.split()[:3] for line in text.splitlines() if line[:1].isdigit()]
    ranking = {"2": "50", "4": "40", "1": "30", "3": "20", "0": "10"}
    assert rows == [[number, "done", value] for number, value in ranking.items()]


def test_show_writes_no_control_characters_of_a_trial(answer, study):
    _, text = answer("study", "show", "mine")
    assert "failed: trial 6: no memory\\x1b[2J" in text
    assert "\x1b" not in text


def test_show_all_lists_every_trial(answer, study):
    _, text = answer("study", "show", "mine", "--all")
    states = [line.split()[1] for line in text.splitlines() if line[:1].isdigit()]
    assert states == ["done"] * 5 + ["pruned", "failed", "running"]


def test_show_as_json_has_all_that_is_known(answer, study):
    data = json.loads(answer("study", "show", "mine", "--json")[1])
    assert data["counts"] == {"running": 1, "done": 5, "pruned": 1, "failed": 1}
    assert data["best"] == [2, 4, 1, 3, 0]
    assert data["trials"][2]["values"] == [50.0]
    assert data["controllers"] == 0


def test_a_path_is_as_good_as_a_name(answer, study, in_process):
    assert answer("study", "show", str(in_process / FOLDER))[0] == 0
    assert answer("study", "show", f"./{FOLDER}")[0] == 0


def test_best_prints_a_command_that_gives_the_trial_again(answer, study):
    from rlzoo_plus.runs.load import load

    code, text = answer("study", "best", "mine")
    lines = text.splitlines()
    assert code == 0
    assert "trial 2" in lines[0]
    first, second = (line for line in lines if line.startswith("rlzoo-plus train"))
    assert second == "rlzoo-plus train study=mine trial=2"
    config = load(shlex.split(first)[2:])
    drawn = study.trials()[2].params["algo.hyperparams.gamma"]
    assert config.algo.hyperparams["gamma"] == drawn
    assert config.num_threads == 1


def test_a_drawn_value_takes_the_place_of_a_fixed_one(answer, in_process):
    base = ["env=cartpole_bullet", "algo.hyperparams.gamma=0.5", "num_threads=2"]
    add_trial(make_study(in_process / FOLDER, base=base), [1.0])
    _, text = answer("study", "best", "mine")
    command = next(line for line in text.splitlines() if line.startswith("rlzoo-plus train"))
    assert command.count("gamma=") == 1
    assert "gamma=0.5" not in command
    assert command.count("num_threads=") == 1


def test_best_is_what_the_report_found_on_fresh_seeds(answer, study, in_process):
    runs = [{"late_return": value} for value in (-280.0, -290.0, -285.0)]
    row = {"number": 4, "retrained": {"seeds": [1000, 1001, 1002], "runs": runs}}
    found = {"winner": 4, "experiment": "mine_best", "best": [row]}
    write_json(in_process / FOLDER / "report.json", found)
    _, text = answer("study", "best", "mine")
    assert text.startswith("trial 4, best on fresh seeds\n")
    assert "fresh seeds: late_return -285 (n=3)" in text
    assert "search: late_return 40 (" in text
    assert "rlzoo-plus train experiment=mine_best" in text
    data = json.loads(answer("study", "best", "mine", "--json")[1])
    assert (data["best"][0]["number"], data["experiment"]) == (4, "mine_best")
    assert data["best"][0]["fresh_seeds"]["late_return"]["iqm"] == -285.0


def test_a_winner_that_was_not_trained_again_is_not_called_best_on_fresh_seeds(
    answer, study, in_process
):
    write_json(in_process / FOLDER / "report.json", {"winner": 4, "best": [{"number": 4}]})
    _, text = answer("study", "best", "mine")
    assert text.startswith("trial 4, best by the metric of the search\n")
    assert "fresh seeds: not known" in text


@pytest.mark.parametrize(
    "report",
    [
        "{",
        "[]",
        '{"winner": "x", "experiment": 3}',
        '{"winner": 99}',
        '{"best": [{"number": 2, "retrained": {"seeds": 1, "runs": [7, {"late_return": "x"}]}}]}',
    ],
)
def test_a_damaged_report_is_passed_over(answer, study, in_process, report):
    (in_process / FOLDER / "report.json").write_text(report)
    code, text = answer("study", "best", "mine")
    assert code == 0
    assert text.startswith("trial 2, best by the metric")


def test_of_several_objectives_best_prints_the_whole_front(answer, in_process):
    hpo = settings(objectives={"late_return": "maximize", "training_time_s": "minimize"})
    made = make_study(in_process / FOLDER, hpo)
    for values in ([10.0, 1.0], [20.0, 2.0], [5.0, 5.0]):
        add_trial(made, values)
    _, text = answer("study", "best", "mine")
    assert [line.split(",")[0] for line in text.splitlines() if ", best" in line] == [
        "trial 1",
        "trial 0",
    ]


def test_plot_draws_a_picture_into_the_study(answer, study, in_process):
    assert answer("study", "plot", "mine")[0] == 0
    assert (in_process / FOLDER / "study.png").read_bytes().startswith(b"\x89PNG")


def test_plot_takes_a_file_of_ones_own(answer, study, in_process):
    assert answer("study", "plot", "mine", "--out", "my.png")[0] == 0
    assert (in_process / "my.png").is_file()


def test_importance_names_the_values_with_their_shares(answer, study):
    text = answer("study", "importance", "mine")[1]
    assert "100.0 %" in text
    assert "importances from 5 trials are uncertain: 30 or more" in text
    data = json.loads(answer("study", "importance", "mine", "--json")[1])
    assert data == {"late_return": {"algo.hyperparams.gamma": 1.0}}


@pytest.mark.parametrize("what", ["show", "best", "plot", "importance"])
def test_a_study_without_trials_is_no_traceback(answer, in_process, what):
    make_study(in_process / FOLDER)
    code, text = answer("study", what, "mine")
    assert code == (2 if what in ("best", "plot") else 0)
    assert "Traceback" not in text


@pytest.mark.parametrize("what", ["show", "best", "plot", "importance"])
def test_a_misspelled_study_gets_a_suggestion(answer, study, what):
    code, text = answer("study", what, "mien")
    assert code == 2
    assert "mien: no such study" in text
    assert "Did you mean 'mine'?" in text


def test_without_any_study_the_command_that_starts_one_is_named(answer):
    code, text = answer("study", "show", "mine")
    assert code == 2
    assert "rlzoo-plus train -m hpo=ppo" in text


@pytest.mark.parametrize(
    ("content", "about"),
    [
        ("{", "cannot be read"),
        ("[]", "it is no mapping"),
        ('{"format": 2}', "its format is 2"),
        ('{"format": 1, "name": 3, "storage": "journal"}', "name: Input should be a valid string"),
        ('{"format": 1, "name": "mine", "storage": "journal"}', "cannot be read"),
        ('{"format": 1, "format": 1}', "a key twice"),
    ],
)
def test_a_damaged_file_is_one_line(answer, study, in_process, content, about):
    (in_process / FOLDER / NAME).write_text(content)
    code, text = answer("study", "show", "mine")
    assert code == 2
    assert about in text
    assert len(text.splitlines()) == 1


def test_a_strangers_settings_cannot_steer_the_terminal(answer, in_process):
    base = ["env=\x1b[2Jcartpole", "~x=\x07"]
    make_study(in_process / FOLDER, base=base)
    _, text = answer("study", "show", "mine")
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_file_that_is_a_link_is_not_followed(answer, study, in_process):
    file = in_process / FOLDER / NAME
    file.rename(in_process / "elsewhere.json")
    file.symlink_to(in_process / "elsewhere.json")
    code, text = answer("study", "show", "mine")
    assert code == 2
    assert "is a link" in text
