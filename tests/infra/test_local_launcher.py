"""Jobs in processes of their own: output, exit codes, limits, signals, a controller that dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlzoo_plus.infra.job import JobSpec, Limits
from rlzoo_plus.infra.local import LocalLauncher
from rlzoo_plus.infra.usage import session_memory_bytes

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs sessions")


@pytest.fixture(scope="module")
def launcher():
    return LocalLauncher(2)


@pytest.fixture
def submit(launcher, tmp_path):
    handles = []

    def submit_it(function, limits=None, **data):
        spec = JobSpec(
            function, f"support.infra_jobs:{function}", data, tmp_path / "run" / "log.txt",
            limits or Limits(),
        )  # fmt: skip
        handles.append(launcher.submit(spec))
        return handles[-1]

    yield submit_it
    for handle in handles:
        handle.kill()
        handle.process.join()


def end_of(launcher, handle, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while (end := handle.poll()) is None:
        assert time.monotonic() < deadline
        launcher.wait([handle], 0.05)
    return end


def wait_for(condition, timeout_s=30.0):
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_output_goes_to_the_log_and_the_exit_code_comes_back(launcher, submit, tmp_path):
    assert end_of(launcher, submit("say", word="hello", code=3)).code == 3
    text = (tmp_path / "run" / "log.txt").read_text()
    assert "said hello" in text
    assert "complained" in text


def test_a_second_attempt_appends_to_the_log(launcher, submit, tmp_path):
    for word in ("one", "two"):
        end_of(launcher, submit("say", word=word))
    text = (tmp_path / "run" / "log.txt").read_text()
    assert text.index("said one") < text.index("said two")


def test_an_error_is_in_the_log_and_its_exit_code_is_1(launcher, submit, tmp_path):
    assert end_of(launcher, submit("fail")).code == 1
    assert "RuntimeError: the gearbox broke" in (tmp_path / "run" / "log.txt").read_text()


def test_a_killed_job_does_not_touch_its_neighbour(launcher, submit, tmp_path):
    other = submit("wait", file=str(tmp_path / "other"))
    assert end_of(launcher, submit("kill_itself")).code == -signal.SIGKILL
    wait_for((tmp_path / "other").exists)
    assert other.poll() is None


def test_numerical_libraries_find_one_thread_set(launcher, submit, tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    LocalLauncher(1)
    end_of(launcher, submit("threads"))
    assert "OMP_NUM_THREADS" not in os.environ
    assert (tmp_path / "run" / "log.txt").read_text().split()[-1] == "1"


def test_a_job_above_its_memory_is_killed_and_says_why(launcher, submit):
    end = end_of(launcher, submit("grow", Limits(memory_gib=0.25), mib=400))
    assert end.code == -signal.SIGKILL
    assert "above infra.memory_gib=0.25" in end.limit


def test_a_job_above_its_time_is_stopped_cleanly(launcher, submit, tmp_path):
    end = end_of(launcher, submit("wait", Limits(time_s=1.0), file=str(tmp_path / "file")))
    assert end.code == 75
    assert "infra.time_limit_minutes" in end.limit
    assert (tmp_path / "file").read_text() == "stopped"


def test_to_stop_is_sigterm(launcher, submit, tmp_path):
    handle = submit("wait", file=str(tmp_path / "file"))
    wait_for((tmp_path / "file").exists)
    handle.stop()
    assert end_of(launcher, handle).code == 75


def test_what_a_killed_job_has_started_ends_with_it(launcher, submit, tmp_path):
    file = tmp_path / "file"
    handle = submit("wait_with_child", file=str(file))
    wait_for(lambda: file.exists() and file.read_text())
    child = int(file.read_text())
    assert is_alive(child)
    os.kill(handle.process.pid, signal.SIGKILL)
    end_of(launcher, handle)
    wait_for(lambda: not is_alive(child))


def test_jobs_of_a_killed_controller_stop_cleanly(tmp_path):
    file = tmp_path / "file"
    code = (
        "import time\nfrom pathlib import Path\n"
        "from rlzoo_plus.infra.job import JobSpec\n"
        "from rlzoo_plus.infra.local import LocalLauncher\n"
        f"data = {{'file': {str(file)!r}}}\n"
        f"log = Path({str(tmp_path / 'log.txt')!r})\n"
        "LocalLauncher(1).submit(JobSpec('w', 'support.infra_jobs:wait', data, log))\n"
        "time.sleep(100)\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    controller = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}
    )
    wait_for(lambda: file.exists() and file.read_text())
    controller.kill()
    controller.wait()
    wait_for(lambda: file.read_text() == "stopped", timeout_s=10)


def test_memory_is_that_of_a_whole_session():
    assert session_memory_bytes(os.getsid(0)) > 10 * 2**20
    assert session_memory_bytes(2**22 + 1) == 0
