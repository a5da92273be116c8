"""Rows of logs that a resume cuts off are kept and compared with those made again."""

import json

import pytest

from rlzoo_plus.artifacts.records import append_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.training.resume.log_rows import CutRows, log_sizes, rewind_logs

EVALUATIONS, MONITOR = "evaluations.jsonl", "monitor/0.monitor.csv"


@pytest.fixture
def run_dir(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "monitor").mkdir()
    return RunDir(tmp_path)


def metric(run_dir, step, value, key="train/loss", ts=0.0):
    record = {"ts": ts, "step": step, "key": key, "value": value, "tags": {}}
    append_records(run_dir.metrics_file, [record])


def metrics(run_dir, *steps):
    """Record a tenth of each step."""
    for step in steps:
        metric(run_dir, step, step / 10)


def stop(run_dir, sizes, step):
    """Go on from a checkpoint: keep the rows behind it, then cut them off."""
    rows = CutRows.keep(run_dir, sizes, step)
    rewind_logs(run_dir, sizes)
    return rows


def test_rows_that_come_again_have_no_difference_and_leave_nothing(run_dir):
    metrics(run_dir, 1)
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2)
    rows = stop(run_dir, sizes, 1)
    assert run_dir.cut_rows_file.is_file()
    metric(run_dir, 2, 0.2, ts=7.0)
    assert rows.compare() is None
    assert not run_dir.cut_rows_file.exists()
    metrics(run_dir, 3)
    assert rows.compare(is_over=True) is None


def test_the_first_row_that_differs_is_named(run_dir):
    metrics(run_dir, 1)
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2, 3, 4)
    rows = stop(run_dir, sizes, 1)
    metrics(run_dir, 2)
    assert rows.compare() is None
    metric(run_dir, 3, 0.25)
    metric(run_dir, 4, 0.25)
    expected = "metrics.jsonl: value of train/loss at step 3 was 0.3, is 0.25"
    assert rows.compare() == expected
    assert rows.since == 1
    assert CutRows.keep(run_dir, log_sizes(run_dir), 5).difference == expected


def test_of_an_evaluation_the_mean_return_is_named(run_dir):
    sizes = log_sizes(run_dir)
    record = {"step": 8, "returns": [1.0, 2.0], "mean_return": 1.5}
    append_records(run_dir.evaluations_file, [record])
    rows = stop(run_dir, sizes, 4)
    append_records(run_dir.evaluations_file, [{**record, "returns": [1.0], "mean_return": 1.0}])
    assert rows.compare() == "evaluations.jsonl: mean_return at step 8 was 1.5, is 1.0"


@pytest.mark.parametrize("key", ["time/fps", "train/update_time", "perf/load", "rollout/step_ms"])
def test_a_metric_of_the_clock_does_not_count(run_dir, key):
    sizes = log_sizes(run_dir)
    metric(run_dir, 2, 100.0, key)
    rows = stop(run_dir, sizes, 1)
    metric(run_dir, 2, 50.0, key)
    assert rows.compare(is_over=True) is None


def test_the_time_in_a_row_of_a_monitor_does_not_count(run_dir):
    csv = run_dir.monitor / "0.monitor.csv"
    csv.write_text('#{"t_start": 1.0}\nr,l,t,won\n')
    sizes = log_sizes(run_dir)
    with csv.open("a") as file:
        file.write("1.5,8,0.25,True\n")
    rows = stop(run_dir, sizes, 1)
    with csv.open("a") as file:
        file.write("1.5,8,9.75,True\n")
    assert rows.compare(is_over=True) is None


def test_a_row_of_a_monitor_that_differs_is_named(run_dir):
    csv = run_dir.monitor / "0.monitor.csv"
    sizes = log_sizes(run_dir)
    csv.write_text('#{"t_start": 1.0}\nr,l,t\n1.5,8,0.25\n')
    rows = stop(run_dir, sizes, 1)
    csv.write_text('#{"t_start": 5.0}\nr,l,t\n2.5,8,0.25\n')
    assert rows.compare() == f"{MONITOR}: a row was 1.5,8, is 2.5,8"


def test_a_second_stop_before_all_came_again_keeps_the_rows_of_the_first(run_dir):
    metrics(run_dir, 1)
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2, 3, 4)
    stop(run_dir, sizes, 1)
    metrics(run_dir, 2)
    rows = stop(run_dir, sizes, 1)
    assert rows.difference is None
    metrics(run_dir, 2, 3)
    assert rows.compare() is None
    metric(run_dir, 4, 0.5)
    assert "at step 4 was 0.4, is 0.5" in rows.compare()


def test_a_second_stop_from_a_newer_checkpoint_keeps_what_is_still_to_come(run_dir):
    metrics(run_dir, 1)
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2, 3, 4)
    stop(run_dir, sizes, 1)
    metrics(run_dir, 2)
    newer = log_sizes(run_dir)
    metrics(run_dir, 3)
    rows = stop(run_dir, newer, 2)
    assert (rows.difference, rows.since) == (None, 1)
    metrics(run_dir, 3)
    metric(run_dir, 4, 0.0)
    assert "at step 4 was 0.4, is 0.0" in rows.compare()


def test_a_second_stop_from_an_older_checkpoint_keeps_all_behind_it(run_dir):
    metrics(run_dir, 1)
    older = log_sizes(run_dir)
    metrics(run_dir, 2)
    sizes = log_sizes(run_dir)
    metrics(run_dir, 3)
    stop(run_dir, sizes, 2)
    rows = stop(run_dir, older, 1)
    metrics(run_dir, 2)
    assert rows.compare() is None
    metric(run_dir, 3, 0.1)
    assert "at step 3 was 0.3, is 0.1" in rows.compare()


def test_a_difference_before_a_second_stop_is_not_forgotten(run_dir):
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2)
    stop(run_dir, sizes, 1)
    metric(run_dir, 2, 0.9)
    rows = stop(run_dir, sizes, 1)
    assert "was 0.2, is 0.9" in rows.difference
    assert rows.compare() == rows.difference


def test_a_row_that_does_not_come_again_differs_when_the_run_is_over(run_dir):
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2)
    rows = stop(run_dir, sizes, 1)
    assert rows.compare() is None
    assert rows.compare(is_over=True).startswith("metrics.jsonl: a row is missing now: ")


def test_a_torn_last_line_is_none(run_dir):
    sizes = log_sizes(run_dir)
    metrics(run_dir, 2)
    with run_dir.metrics_file.open("a") as file:
        file.write('{"ts": 1.0, "st')
    rows = stop(run_dir, sizes, 1)
    metrics(run_dir, 2)
    assert rows.compare(is_over=True) is None


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"since": -1, "difference": null, "logs": {}}',
        '{"since": 1, "difference": null, "logs": {"metrics.jsonl": {"offset": "a", "rows": []}}}',
        '{"since": 1, "difference": null, "logs": []}',
    ],
)
def test_a_damaged_file_is_as_none(run_dir, content, caplog):
    metrics(run_dir, 1)
    run_dir.cut_rows_file.write_text(content)
    rows = stop(run_dir, log_sizes(run_dir), 1)
    assert rows.compare(is_over=True) is None
    assert "is damaged" in caplog.text


def test_a_forged_file_names_no_other_file_and_steers_no_terminal(run_dir, tmp_path):
    (tmp_path / "secret.csv").write_text("a,b,c\n")
    logs = {"secret.csv": {"offset": 0, "rows": ["x"]}}
    forged = {"since": 1, "difference": "\x1b[31mred", "logs": logs}
    run_dir.cut_rows_file.write_text(json.dumps(forged))
    rows = CutRows.keep(run_dir, {}, 1)
    assert rows.compare() == "\\x1b[31mred"
    assert (tmp_path / "secret.csv").read_text() == "a,b,c\n"
    forged["difference"] = None
    run_dir.cut_rows_file.write_text(json.dumps(forged))
    assert CutRows.keep(run_dir, {}, 1).compare() is None


def test_only_so_many_bytes_are_kept(run_dir, monkeypatch):
    from rlzoo_plus.training.resume import log_rows

    monkeypatch.setattr(log_rows, "_MOST_BYTES", 1000)
    sizes = log_sizes(run_dir)
    for step in range(100):
        metric(run_dir, step, 0.1)
    stop(run_dir, sizes, 1)
    assert 0 < run_dir.cut_rows_file.stat().st_size < 1500
