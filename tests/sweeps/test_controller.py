"""The controller: what it runs, in which order, and what it says of each job."""

import os
import signal
import threading

import pytest
from support.processes import wait_for
from support.training import tiny_config

from rlzoo_plus.artifacts import records
from rlzoo_plus.sweeps import controller as controller_module
from rlzoo_plus.sweeps.controller import Controller
from rlzoo_plus.sweeps.launchers.debug import DebugLauncher
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.ledger import Ledger
from rlzoo_plus.sweeps.states import JobState, look_at
from rlzoo_plus.sweeps.summary import summarise
from rlzoo_plus.sweeps.sweep_job import make_job
from rlzoo_plus.sweeps.sweep_view import headline, job_line, live_table, summary_table


@pytest.fixture
def jobs(tmp_path):
    configs = [tiny_config("ppo", "tests/TinyReach-v0", f"seed={seed}") for seed in range(4)]
    return [make_job(c.model_copy(update={"sweep": str(tmp_path)})) for c in configs]


@pytest.fixture
def book(tmp_path, jobs):
    book = Ledger(tmp_path)
    book.add(jobs)
    return book


def run(book, jobs, function, launcher=None, module="rlzoo_plus.testing.jobs"):
    ended = []
    target = f"{module}:{function}"
    controller = Controller(book, jobs, launcher or DebugLauncher(), ended.append, target=target)
    return controller.run(), ended


@pytest.mark.parametrize("make", [DebugLauncher, lambda: LocalLauncher(2)])
def test_all_jobs_run_and_are_not_run_again(book, jobs, make):
    code, ended = run(book, jobs, "finish", make())
    assert code == 0
    assert all(entry.state is JobState.DONE and entry.ran_s for entry in ended)
    code, ended = run(book, jobs, "fail", make())
    assert code == 0
    assert [entry.ran_s for entry in ended] == [0.0] * 4


def test_a_job_that_fails_does_not_touch_the_others(book, jobs, capsys):
    code, _ = run(book, jobs, "fail_seed_1", module="support.jobs")
    assert code == 1
    states = [view.state for view in look_at(book.read())]
    assert states == [JobState.DONE, JobState.FAILED, JobState.DONE, JobState.DONE]
    assert "the gearbox broke" in capsys.readouterr().err


def test_a_job_that_a_signal_kept_from_starting_waits(book, jobs):
    class Killed(DebugLauncher):
        def submit(self, spec):
            # As if the signal had ended the server of forks, too.
            os.kill(os.getpid(), signal.SIGTERM)
            raise EOFError("unexpected EOF")

    code, _ = run(book, jobs, "finish", Killed())
    assert code == 75
    assert {view.state for view in look_at(book.read())} == {JobState.WAITING}


def test_a_job_that_runs_elsewhere_is_waited_for(book, jobs):
    jobs[0].path.mkdir(parents=True)
    lock = jobs[0].run_dir.lock
    lock.acquire()

    def finish_elsewhere():
        # The controller has nothing left but to wait.
        wait_for(jobs[1].is_finished)
        from rlzoo_plus.testing.jobs import finish

        finish({"config": jobs[0].config.model_dump(mode="json"), "command": "elsewhere"})
        lock.release()

    thread = threading.Thread(target=finish_elsewhere)
    thread.start()
    code, ended = run(book, jobs[:2], "finish")
    thread.join()
    assert code == 0
    assert [entry.ran_s > 0 for entry in ended] == [True, False]
    assert jobs[0].run_dir.command_file.read_text() == "elsewhere\n"


def test_what_failed_in_another_controller_meanwhile_is_not_tried_again(book, jobs):
    ended = []

    controller = Controller(
        book, jobs[:2], DebugLauncher(), ended.append, target="rlzoo_plus.testing.jobs:finish"
    )
    book.write("failed", jobs[1], reason="the gearbox broke there")
    assert controller.run() == 1
    assert [entry.reason for entry in ended] == ["", "the gearbox broke there"]


@pytest.fixture
def many(tmp_path, jobs):
    configs = [jobs[0].config.model_copy(update={"seed": seed}) for seed in range(40)]
    return [make_job(config) for config in configs]


def test_starting_a_job_costs_the_same_however_many_there_are(book, many, monkeypatch):
    class Watched(controller_module.Entry):
        looks = 0

        def __getattribute__(self, name):
            Watched.looks += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(controller_module, "Entry", Watched)
    code, ended = run(book, many, "finish")
    assert code == 0
    assert len(ended) == 40
    assert Watched.looks < 60 * 40


def test_the_ledger_is_not_read_again_for_each_job(book, many, monkeypatch):
    book.add(many)
    size = book.path.stat().st_size
    read = []
    parse = records.parse_record
    monkeypatch.setattr(
        records, "parse_record", lambda line: (read.append(len(line)), parse(line))[1]
    )
    assert run(book, many, "finish")[0] == 0
    # Only what was written since it began.
    assert sum(read) <= book.path.stat().st_size - size


def test_tables_can_be_drawn_of_any_state(book, jobs):
    from rich.console import Console

    run(book, jobs[:2], "fail_seed_1", module="support.jobs")
    views = look_at(book.read())
    console = Console(record=True, width=150, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(live_table(views, 2, 10.0))
    console.print(summary_table(summarise(views)))
    text = console.export_text()
    assert "4 jobs: 2 waiting, 1 done, 1 failed; about" in text
    assert "1 (1 failed, 2 open)" in text
    assert "failed: " in job_line(views[1], 2, 4)
    assert headline([], 1, None) == "no jobs"
