"""One job at a time is done in the background, and its error is not lost."""

import subprocess
import sys
import threading

import pytest

from rlzoo_plus.artifacts.checkpoint import BackgroundWriter


@pytest.fixture
def writer():
    return BackgroundWriter()


@pytest.fixture
def gate():
    """Return an event that lets a job end; it is set after the test."""
    event = threading.Event()
    yield event
    event.set()


def fail():
    raise OSError("the disk is full")


def test_a_job_runs_in_another_thread_while_this_one_goes_on(writer, gate):
    seen = []
    writer.submit(lambda: (gate.wait(10), seen.append(threading.current_thread())))
    assert seen == []
    gate.set()
    writer.wait()
    assert seen[0] is not threading.current_thread()


def test_jobs_are_done_one_after_the_other_in_their_order(writer):
    done, running = [], []

    def job(number):
        running.append(number)
        assert len(running) == 1
        running.remove(number)
        done.append(number)

    for number in range(20):
        writer.submit(lambda number=number: job(number))
    writer.wait()
    assert done == list(range(20))


@pytest.mark.parametrize("waits", [True, False])
def test_an_error_is_raised_once_by_the_next_wait_or_submit_which_begins_nothing(writer, waits):
    done = []
    writer.submit(fail)
    with pytest.raises(OSError, match="disk is full"):
        writer.wait() if waits else writer.submit(lambda: done.append(0))
    writer.wait()
    writer.submit(lambda: done.append(1))
    writer.wait()
    assert done == [1]


def test_an_interrupted_wait_does_not_forget_the_job(writer, gate, monkeypatch):
    done = []
    writer.submit(lambda: (gate.wait(10), done.append(1)))
    with monkeypatch.context() as patch:
        patch.setattr(type(writer._running), "exception", _interrupt)
        patch.setattr(type(writer._running), "result", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            writer.wait()
    gate.set()
    writer.wait()
    assert done == [1]


def _interrupt(*_):
    raise KeyboardInterrupt


def test_the_end_of_the_process_lets_the_running_job_finish(tmp_path):
    code = """
import pathlib, sys, time
from rlzoo_plus.artifacts.checkpoint import BackgroundWriter
writer = BackgroundWriter()
writer.submit(lambda: (time.sleep(0.1), pathlib.Path(sys.argv[1]).touch()))
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "done")], check=True)
    assert (tmp_path / "done").exists()
