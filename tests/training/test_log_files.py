"""The append-only files of a run are cut back to what they were at a checkpoint."""

import logging

import pytest

from rlzoo_plus.artifacts.records import append_records, read_records
from rlzoo_plus.artifacts.run_dir import RunDir
from rlzoo_plus.training.resume.log_rows import log_sizes, rewind_logs

EVENTS = "tensorboard/events.out.tfevents.1.host.2.0"
NAMES = ["metrics.jsonl", "evaluations.jsonl", EVENTS, "monitor/0.monitor.csv"]


@pytest.fixture
def run(tmp_path):
    """Return a run whose log files all hold `before`."""
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"before\n")
    return RunDir(tmp_path)


def append(run, name, data=b"after\n"):
    with (run.path / name).open("ab") as file:
        file.write(data)


def test_every_log_file_is_listed_with_its_length(run):
    assert log_sizes(run) == dict.fromkeys(NAMES, 7)


def test_a_run_without_logs_has_no_sizes(tmp_path):
    assert log_sizes(RunDir(tmp_path)) == {}


def test_other_files_of_a_run_are_no_logs(run):
    for name in ("config.yaml", "result.json", "monitor/readme.txt", "tensorboard/notes"):
        (run.path / name).write_text("mine")
    sizes = log_sizes(run)
    assert set(sizes) == set(NAMES)
    rewind_logs(run, {})
    assert (run.path / "monitor/readme.txt").read_text() == "mine"
    assert (run.path / "config.yaml").read_text() == "mine"


@pytest.mark.parametrize("name", NAMES)
def test_what_was_appended_later_is_cut_off(run, name):
    sizes = log_sizes(run)
    append(run, name)
    assert rewind_logs(run, sizes) == []
    assert (run.path / name).read_bytes() == b"before\n"


def test_a_line_that_was_cut_short_by_a_kill_goes_with_the_rest(run):
    append_records(run.metrics_file, [{"step": 1}])
    sizes = log_sizes(run)
    append(run, "metrics.jsonl", b'{"step": 2}\n{"st')
    rewind_logs(run, sizes)
    append_records(run.metrics_file, [{"step": 2}])
    assert read_records(run.metrics_file) == [{"step": 1}, {"step": 2}]


def test_files_that_came_later_are_removed(run):
    sizes = log_sizes(run)
    append(run, "monitor/1.monitor.csv")
    append(run, "tensorboard/events.out.tfevents.9.host.9.0")
    rewind_logs(run, sizes)
    assert log_sizes(run) == sizes


def test_a_run_without_a_checkpoint_begins_its_logs_anew(run):
    assert rewind_logs(run, {}) == []
    assert log_sizes(run) == {}


def test_cutting_back_twice_is_like_once(run):
    sizes = log_sizes(run)
    append(run, NAMES[0])
    rewind_logs(run, sizes)
    assert rewind_logs(run, sizes) == []
    assert log_sizes(run) == sizes


@pytest.mark.parametrize("loss", ["shorter", "gone"])
def test_missing_records_are_told_and_nothing_is_made_up(run, loss, caplog):
    sizes = log_sizes(run)
    file = run.path / NAMES[1]
    file.write_bytes(b"be") if loss == "shorter" else file.unlink()
    with caplog.at_level(logging.WARNING):
        assert rewind_logs(run, sizes) == [NAMES[1]]
    assert "records are missing" in caplog.text
    assert NAMES[1] in caplog.text
    assert not file.exists() or file.read_bytes() == b"be"


def test_a_link_is_neither_cut_nor_removed(run, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "mine.csv"
    elsewhere.write_text("mine and long")
    (run.path / "monitor" / "7.monitor.csv").symlink_to(elsewhere)
    assert "monitor/7.monitor.csv" not in log_sizes(run)
    rewind_logs(run, {"monitor/7.monitor.csv": 2})
    assert elsewhere.read_text() == "mine and long"
    assert (run.path / "monitor" / "7.monitor.csv").is_symlink()


def test_a_name_that_leads_out_of_the_run_changes_nothing(run, tmp_path_factory):
    outside = run.path.parent / "outside.csv"
    outside.write_text("long enough")
    assert rewind_logs(run, {**log_sizes(run), "../outside.csv": 1}) == ["../outside.csv"]
    assert outside.read_text() == "long enough"
