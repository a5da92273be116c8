"""The report of a study: what is measured again stands beside what the trials were chosen by."""

import json

import pytest
from support.studies import settings

from rlzoo_plus.analysis.statistics import iqm_interval
from rlzoo_plus.tuning.study_report import (
    HeldOut,
    Retrained,
    StudyReport,
    as_data,
    choose_winner,
    write_report,
)
from rlzoo_plus.tuning.trials import TrialState, TrialView

RETURNS = (400.0, 420.0, 410.0)


def done(number, *values, **params):
    overrides = tuple(f"{key}={value}" for key, value in params.items())
    return TrialView(number, TrialState.DONE, values, params, overrides, f"trials/{number:04d}")


def again(number, returns=RETURNS, **more):
    metrics = tuple({"late_return": value, "final_return": value - 1} for value in returns)
    return Retrained(number, tuple(range(1000, 1000 + len(returns))), metrics, **more)


def report(trials, best=None, **more):
    hpo = more.pop("hpo", None) or settings()
    finished = [view for view in trials if view.state is TrialState.DONE]
    return StudyReport("mine", hpo, ["env=cartpole_bullet"], trials, best or finished, **more)


def text_of(tmp_path, made):
    return write_report(tmp_path, made)[1].read_text()


def row_of(text, trial):
    lines = [line for line in text.splitlines() if line.startswith(f"| {trial} ")]
    return [cell.strip() for cell in lines[0].strip("|").split("|")]


def test_what_fresh_seeds_give_stands_beside_the_first_figure(tmp_path):
    made = report([done(7, 500.0)], retrained=[again(7, held_out=HeldOut(405.0, 12.5, 100))])
    row = row_of(text_of(tmp_path, made), 7)
    assert row[:2] == ["7 (winner)", "500"]
    assert row[2] == "410 (n=3)"
    assert row[3] == "-90 (-18 %)"
    assert row[-1] == "405 ± 12.5 (100)"


def test_five_fresh_seeds_have_an_interval(tmp_path):
    returns = (400.0, 420.0, 410.0, 390.0, 430.0)
    made = report([done(7, 500.0)], retrained=[again(7, returns)])
    low, high = iqm_interval(returns)
    assert row_of(text_of(tmp_path, made), 7)[2] == f"410 [{low:.4g}, {high:.4g}]"


def test_numbers_that_do_not_exist_are_a_dash_or_null(tmp_path):
    broken = Retrained(1, (1000,), ({},))
    made = report([done(1, 500.0), done(2, 400.0)], retrained=[broken])
    for trial in (1, 2):
        assert row_of(text_of(tmp_path, made), trial)[2:] == ["-"] * 5
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["best"][0]["retrained"]["iqm"]["late_return"] is None
    assert data["best"][1]["retrained"] is None


def test_no_number_of_the_data_is_nan(tmp_path):
    made = report([done(1, float("nan"))], retrained=[again(1, [float("nan"), float("inf")])])
    text = write_report(tmp_path, made)[0].read_text()
    assert "NaN" not in text
    assert "Infinity" not in text


def test_the_winner_is_the_best_on_fresh_seeds_not_on_the_first_figure():
    pair = [again(1, (100.0, 110.0)), again(2, (200.0, 210.0))]
    made = report([done(1, 500.0), done(2, 400.0)], retrained=pair)
    assert made.winner == 2


def test_where_less_is_better_the_lowest_wins():
    hpo = settings(objectives={"training_time_s": "minimize"})
    pair = [Retrained(n, (0,), ({"training_time_s": value},)) for n, value in ((1, 30.0), (2, 9.0))]
    assert choose_winner(pair, hpo).number == 2


def test_without_retraining_the_first_of_the_best_is_the_winner(tmp_path):
    made = report([done(3, 500.0), done(4, 400.0)])
    assert made.winner == 3
    assert "No trial was trained again" in text_of(tmp_path, made)


def test_a_study_without_a_finished_trial_has_a_report(tmp_path):
    made = report([TrialView(0, TrialState.FAILED, reason="no memory")])
    text = text_of(tmp_path, made)
    assert "No trial is done yet" in text
    assert "- trial 0: no memory" in text
    assert as_data(made)["winner"] is None


def test_trials_are_counted_by_what_became_of_them():
    states = [TrialState.DONE, TrialState.PRUNED, TrialState.PRUNED, TrialState.FAILED]
    trials = [TrialView(n, state, (1.0,)) for n, state in enumerate(states)]
    assert as_data(report(trials))["counts"] == {"done": 1, "pruned": 2, "failed": 1}


def test_several_objectives_have_a_column_each_and_no_single_best(tmp_path):
    hpo = settings(objectives={"late_return": "maximize", "training_time_s": "minimize"})
    made = report([done(1, 500.0, 60.0), done(2, 300.0, 20.0)], hpo=hpo)
    text = text_of(tmp_path, made)
    assert "## Pareto front" in text
    assert [row_of(text, 2)[i] for i in (1, 4)] == ["300", "20"]


def test_trials_that_were_shorter_than_the_retrained_runs_are_said_to_be(tmp_path):
    same = report([done(1, 1.0)], trial_timesteps=5000, full_timesteps=5000)
    shorter = report([done(1, 1.0)], trial_timesteps=5000, full_timesteps=50000)
    assert "the retrained runs" not in text_of(tmp_path, same)
    assert "Trials ran 5,000 steps and the retrained runs 50,000" in text_of(tmp_path, shorter)


def test_the_commands_train_the_winner_and_any_trial(tmp_path):
    text = text_of(tmp_path, report([done(7, 1.0)], experiment="mine_best"))
    assert "rlzoo-plus train experiment=mine_best " in text
    assert "rlzoo-plus train study=mine trial=7 " in text


def test_a_retrained_trial_that_is_no_longer_among_the_best_stays_in_the_table(tmp_path):
    trials = [done(1, 500.0), done(2, 400.0)]
    text = text_of(tmp_path, report(trials, [trials[0]], retrained=[again(2)]))
    assert row_of(text, "2 (winner)")[1] == "400"


def test_the_table_of_values_has_what_the_runs_used(tmp_path):
    key = "algo.hyperparams.n_steps"
    params = {f"log2({key})": 11, "one_minus(gamma)": 0.02}
    cut = TrialView(1, TrialState.DONE, (1.0,), params, (f"{key}=256", "gamma=0.98"))
    warm = TrialView(2, TrialState.DONE, (1.0,), params)
    text = text_of(tmp_path, report([cut, warm]))
    assert f"| `{key}` | 256 | 2048 |" in text
    assert "| `gamma` | 0.98 | 0.98 |" in text
    assert "log2" not in text


@pytest.mark.parametrize("evil", ["a|b", "`x`", "<b>", "two\nlines", "\x1b[2J"])
def test_no_text_of_a_trial_can_change_the_tables(tmp_path, evil):
    failed = TrialView(9, TrialState.FAILED, reason=evil)
    made = report([done(1, 500.0, mine=evil), failed])
    table = [line for line in text_of(tmp_path, made).splitlines() if "`mine`" in line]
    assert len(table) == 1
    assert table[0].replace("\\|", "").count("|") == 3
    assert "\x1b" not in text_of(tmp_path, made)
    assert "<b>" not in text_of(tmp_path, made)


def test_a_password_among_the_overrides_is_blanked_out(tmp_path):
    hpo = settings()
    made = StudyReport("mine", hpo, ["env.kwargs.password=abc"], [done(1, 1.0)], [done(1, 1.0)])
    assert "abc" not in text_of(tmp_path, made)
