"""Files of any size and kind in a run or a sweep: only so much of them is read, and none blocks."""

import os
import resource

import pytest
from support.evil_sweeps import edit_ledger, make_sweep, stopped

from rlzoo_plus.artifacts.untrusted import read_plain_tail
from rlzoo_plus.commands import dispatch
from rlzoo_plus.sweeps.launchers.launcher import JobEnd
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.states import explain_end, read_progress

HUGE = 10 * 2**30


def sparse(path):
    with path.open("wb") as file:
        file.truncate(HUGE)


def more_memory_after(action):
    """Return how much more memory an action took at its peak [bytes]."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    action()
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def test_a_command_is_added_to_a_huge_file_without_reading_it(tmp_path):
    run = stopped(make_sweep(tmp_path / "s"))
    sparse(run.command_file)
    assert more_memory_after(lambda: run.record_resume({"a": 1}, "the command")) < 2**27
    assert run.command_file.stat().st_size == HUGE + len("\nthe command\n")


def test_a_command_is_added_behind_the_first(tmp_path):
    run = stopped(make_sweep(tmp_path / "s"))
    run.record_resume({"a": 1}, "the second")
    assert run.command_file.read_text() == "a command\nthe second\n"


def test_only_whole_lines_of_the_end_of_a_file_are_returned(tmp_path):
    (tmp_path / "f").write_text("first\nsecond\nthird\n")
    assert read_plain_tail(tmp_path / "f", 100) == [b"first", b"second", b"third", b""]
    assert read_plain_tail(tmp_path / "f", 10) == [b"third", b""]
    assert read_plain_tail(tmp_path / "missing", 10) == []


@pytest.mark.parametrize("make", [os.mkfifo, sparse, os.mkdir, lambda p: p.symlink_to("/dev/zero")])
def test_the_state_of_a_job_is_told_whatever_its_files_are(tmp_path, make):
    job = make_sweep(tmp_path / "s")
    run = stopped(job)
    for path in (run.metrics_file, run.evaluations_file, run.path / "log.txt", run.result_file):
        make(path)
    assert read_progress(run).steps == 0
    assert more_memory_after(lambda: explain_end(JobEnd(1), job.run_dir)) < 2**27


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: record.update(job="../../../etc"),
        lambda record: record.update(job="a\x1b[2J/b/c"),
        lambda record: record.update(config=None),
        lambda record: record["config"].pop("env"),
        lambda record: record["config"].update(seed="many"),
        lambda record: record["config"]["env"].update(id="a\nb"),
        lambda record: record["config"].update(device="\x1b[2J"),
    ],
)
@pytest.mark.parametrize("verb", ["status", "resume", "retry-failed", "prune"])
def test_a_damaged_record_is_named_once_and_the_other_jobs_remain(
    in_process, tmp_path, damage, verb, capsys, caplog, monkeypatch
):
    from rlzoo_plus.sweeps import multirun

    sweep, ran = tmp_path / "s", []
    monkeypatch.setattr(multirun, "launcher_for", lambda configs: Slots)
    monkeypatch.setattr(multirun, "run_jobs", lambda jobs, *_: ran.extend(jobs) or 0)
    whole = make_sweep(sweep)
    bad = make_sweep(tmp_path / "other", "seed=7")
    (sweep / "ledger.jsonl").rename(sweep / "whole")
    (tmp_path / "other" / "ledger.jsonl").rename(sweep / "ledger.jsonl")
    edit_ledger(sweep, damage)
    with (sweep / "ledger.jsonl").open("a") as file:
        file.write((sweep / "whole").read_text())
    if verb == "retry-failed":
        Ledger(sweep).write("failed", whole)
    before = (sweep / "ledger.jsonl").read_text()
    assert dispatch.run("sweep", [verb, str(sweep)]) == 0
    assert len([r for r in caplog.records if "left out" in r.message]) == 1
    assert all(record.message.isprintable() for record in caplog.records)
    assert list(Ledger(sweep).read().jobs) == [whole.key]
    assert [job.key for job in ran] == ([whole.key] if verb in ("resume", "retry-failed") else [])
    assert (sweep / "ledger.jsonl").read_text() == before
    assert bad.key not in capsys.readouterr().out


def test_the_command_that_added_a_damaged_job_writes_it_anew(tmp_path):
    job = make_sweep(tmp_path / "s")
    edit_ledger(tmp_path / "s", lambda record: record["config"].pop("env"))
    assert Ledger(tmp_path / "s").read().jobs == {}
    Ledger(tmp_path / "s").add([job])
    assert list(Ledger(tmp_path / "s").read().jobs) == [job.key]


class Slots:
    slots = 1
