"""What a study aims at, as a run's own files tell it."""

import math

import pytest

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.tuning.objectives import mean_metrics, run_metrics, rung_of, rung_values


def run_with(folder, returns, *, success=None, result=None):
    run = RunDir(folder)
    records = [
        {"step": 100 * (n + 1), "mean_return": value, "success_rate": success}
        for n, value in enumerate(returns)
    ]
    append_records(run.evaluations_file, records)
    run.write_result(result or {"num_timesteps": 500, "training_time_s": 2.0})
    return run


def test_returns_are_told_in_four_ways(tmp_path):
    metrics = run_metrics(run_with(tmp_path, [1.0, 9.0, 4.0, 5.0, 6.0]))
    assert metrics["late_return"] == 5.0
    assert metrics["final_return"] == 6.0
    assert metrics["best_return"] == 9.0
    assert metrics["mean_return"] == 5.0
    assert metrics["steps_per_s"] == 250.0
    assert "success_rate" not in metrics


def test_an_evaluation_that_a_resumed_run_repeats_counts_once(tmp_path):
    run = run_with(tmp_path, [1.0, 2.0])
    append_records(run.evaluations_file, [{"step": 200, "mean_return": 4.0}])
    assert run_metrics(run)["mean_return"] == 2.5


def test_a_run_that_diverged_at_its_end_has_no_number(tmp_path):
    run = run_with(tmp_path, [5.0, 6.0, math.nan])
    assert math.isnan(run_metrics(run)["late_return"])


def test_success_is_averaged_over_the_last_three(tmp_path):
    run = run_with(tmp_path, [0.0, 0.0], success=0.5)
    assert run_metrics(run)["success_rate"] == 0.5


def test_seeds_are_averaged_where_all_of_them_tell_a_figure():
    seeds = [{"late_return": 1.0, "success_rate": 1.0}, {"late_return": 3.0}]
    assert mean_metrics(seeds) == {"late_return": 2.0}
    assert mean_metrics([]) == {}


@pytest.mark.parametrize(("step", "rung"), [(1, 1), (99, 1), (100, 2), (1000, 20), (1200, 20)])
def test_rungs_are_twentieths(step, rung):
    assert rung_of(step, 1000) == rung


def test_the_first_evaluation_of_a_rung_stands_for_it(tmp_path):
    run = run_with(tmp_path, [1.0, 2.0, 3.0])
    assert rung_values(run, 4000, "late_return") == {1: 1.0}
    assert rung_values(run, 2000, "late_return") == {1: 1.0, 2: 2.0, 3: 3.0}
    assert rung_values(run, 2000, "success_rate") == {}


def test_the_evaluation_before_the_training_counts_nowhere(tmp_path):
    run = run_with(tmp_path, [1.0, 2.0])
    append_records(run.evaluations_file, [{"step": 0, "mean_return": 50.0}])
    metrics = run_metrics(run)
    assert (metrics["best_return"], metrics["late_return"], metrics["mean_return"]) == (2, 1.5, 1.5)
    assert rung_values(run, 2000, "late_return") == {1: 1.0, 2: 2.0}


def test_the_evaluation_before_the_training_is_not_reported(monkeypatch):
    from types import SimpleNamespace

    from rlzoo_plus.tuning.trial_reporter import follow

    told = []

    class Reporter:
        def __init__(self, **arguments):
            pass

        def report(self, value, rung):
            told.append((rung, value))

    monkeypatch.setattr("rlzoo_plus.tuning.trial_reporter.TrialReporter", Reporter)
    report = {"metric": "late_return", "trial": {"folder": "."}, "earlier": [], "seed_index": 0}
    watch = follow(report, 2000)
    for step, value in ((0, 50.0), (100, 1.0), (200, 2.0)):
        watch({"step": step, "mean_return": value}, SimpleNamespace(reason=None))
    assert told == [(1, 1.0), (2, 2.0)]
