"""The end of a study: the winner's file, and a report whatever comes of it."""

import io
import json
from dataclasses import replace

import pytest
from pretended import base_fixture, finish, make_fixture  # noqa: F401
from rich.console import Console

from rlzoo_plus.config.resolve import config_hash
from rlzoo_plus.errors import ConfigError
from rlzoo_plus.runs.load import load
from rlzoo_plus.tuning import retraining
from rlzoo_plus.tuning.experiment_file import check_target, winner_options, write_winner
from rlzoo_plus.tuning.study_folder import study_folder
from rlzoo_plus.tuning.study_view import TuningView

NO_RETRAINING = {"best": 0, "seeds": 1, "episodes": 1}


@pytest.fixture
def own(tmp_path):
    folder = tmp_path / "own"
    folder.mkdir()
    return ["--config-dir", str(folder)]


@pytest.fixture
def plan(make):
    return make(lambda run, data, handle: finish(run)).plan


def conclude(tuner, arguments):
    tuner.run()
    console = Console(file=io.StringIO(), width=200)
    view = TuningView(console, tuner.plan, tuner.study, is_live=False)
    code = retraining.conclude(tuner.plan, tuner.study, tuner.launcher, arguments, view)
    report = json.loads((tuner.plan.folder / "report.json").read_text())
    return code, console.file.getvalue(), report


def test_the_winner_is_written_and_may_be_written_again(plan, own, tmp_path):
    file, option = write_winner(plan, 1, plan.base, own)
    assert file == tmp_path / "own" / "experiment" / "s_best.yaml"
    assert option.split() == own
    check_target(plan, own)
    assert write_winner(plan, 2, plan.base, own)[0] == file
    assert "trial 2" in file.read_text()


def test_without_a_folder_of_the_users_the_winner_lies_below_its_study(plan):
    file, option = write_winner(plan, 1, plan.base, [])
    assert file == plan.folder / "conf" / "experiment" / "s_best.yaml"
    assert option == f"--config-dir {plan.folder}/conf "
    again = load([*option.split(), "experiment=s_best"])
    assert config_hash(again) == config_hash(plan.base)
    assert winner_options(plan.folder, "s_best") == option.split()
    assert winner_options(plan.folder, "other") == []


def test_a_file_of_the_user_is_not_replaced(plan, own, tmp_path):
    file = tmp_path / "own" / "experiment" / "s_best.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("n_timesteps: 5\n")
    with pytest.raises(ConfigError, match=r"did not write it.*hpo\.experiment=NAME"):
        check_target(plan, own)
    with pytest.raises(ConfigError, match="exists already"):
        write_winner(plan, 1, plan.base, own)


def test_a_study_whose_name_begins_alike_is_another(plan, own):
    longer = replace(plan, name="s 2", hpo=plan.hpo.model_copy(update={"experiment": "mine"}))
    write_winner(longer, 1, plan.base, own)
    with pytest.raises(ConfigError, match="did not write it"):
        check_target(replace(longer, name="s"), own)


def test_a_long_name_is_known_again(plan, own):
    longer = replace(plan, name="-".join(["long"] * 30))
    write_winner(longer, 1, plan.base, own)
    check_target(longer, own)


def test_a_file_that_cannot_be_written_leaves_a_report(make, own, monkeypatch):
    def refuse(*_):
        raise ConfigError("no such luck.")

    monkeypatch.setattr("rlzoo_plus.tuning.retraining.write_winner", refuse)
    tuner = make(lambda run, data, handle: finish(run), retrain=NO_RETRAINING)
    code, text, report = conclude(tuner, own)
    assert code == 1
    assert "the winner's file is not written: no such luck." in text
    assert f"study={tuner.plan.folder} trial=0" in text
    assert (report["winner"], report["experiment"]) == (0, None)


def test_constraints_that_no_trial_keeps_are_named_and_reported(make, own):
    constraints = ["steps_per_s >= 1e6"]
    tuner = make(lambda run, data, handle: finish(run), constraints=constraints)
    code, text, report = conclude(tuner, own)
    assert code == 1
    assert "none of 3 finished trials keeps steps_per_s >= 1e6" in text
    assert report["counts"] == {"done": 3}


def test_a_study_is_a_name_or_a_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert str(study_folder("~")) == "outputs/studies/~"
    assert study_folder("~/mine") == tmp_path / "mine"
    assert str(study_folder("./mine")) == "mine"
    with pytest.raises(ConfigError, match="nobody-is-called-so"):
        study_folder("~nobody-is-called-so/mine")
