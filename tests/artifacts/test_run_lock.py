"""One process trains in a directory at a time, and a dead one holds nothing."""

import signal
import subprocess
import sys

import pytest

from rlzoo_plus.artifacts.run_dir import RunDir, RunLock

_HOLD = """
import sys
from pathlib import Path
from rlzoo_plus.artifacts.run_dir import RunLock
lock = RunLock(Path(sys.argv[1]))
print(lock.acquire(), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".lock"


@pytest.fixture
def hold(path):
    """Return a function that starts a process which takes the lock, and says whether it could."""
    started = []

    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", _HOLD, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process, process.stdout.readline().strip() == "True"

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_the_lock_of_another_process_cannot_be_taken(path, hold):
    assert hold()[1]
    lock = RunLock(path)
    assert lock.is_held_elsewhere()
    assert not lock.acquire()


def test_a_killed_process_holds_the_lock_no_longer(path, hold):
    process, _ = hold()
    process.send_signal(signal.SIGKILL)
    process.wait()
    lock = RunLock(path)
    assert not lock.is_held_elsewhere()
    assert lock.acquire()
    lock.release()


def test_another_process_gets_the_lock_when_it_is_given_back(path, hold):
    lock = RunLock(path)
    assert lock.acquire()
    assert not hold()[1]
    lock.release()
    assert hold()[1]


def test_two_locks_of_one_process_exclude_each_other_too(path):
    first, second = RunLock(path), RunLock(path)
    assert first.acquire()
    assert not second.acquire()
    assert second.is_held_elsewhere()
    first.release()
    assert second.acquire()
    second.release()


def test_looking_leaves_no_file_and_giving_back_twice_does_nothing(path):
    lock = RunLock(path)
    assert not lock.is_held_elsewhere()
    assert not path.exists()
    lock.release()
    assert lock.acquire()
    lock.release()
    lock.release()
    assert not lock.is_held_elsewhere()
    assert lock.acquire()
    lock.release()


def test_a_with_statement_gives_the_lock_back_after_an_error(path):
    def fail_with_the_lock():
        with RunLock(path) as lock:
            assert lock.acquire()
            raise RuntimeError("it broke")

    with pytest.raises(RuntimeError, match="broke"):
        fail_with_the_lock()
    assert not RunLock(path).is_held_elsewhere()


def test_every_run_has_a_lock_of_its_own(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (RunDir(tmp_path / name).lock for name in ("one", "two"))
    assert one.acquire()
    assert two.acquire()
    one.release()
    two.release()
