"""Local jobs, and controllers that are killed; tests/contracts has what all launchers keep to."""

import os
import signal
import subprocess
import sys
import time

import pytest
from support.processes import environ_of_tests

from rlzoo_plus.sweeps.launchers.launcher import JobSpec
from rlzoo_plus.sweeps.launchers.local import LocalLauncher
from rlzoo_plus.sweeps.launchers.usage import session_memory_bytes
from rlzoo_plus.testing.launcher_contract import end_of, is_alive, wait_for

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs sessions")


@pytest.fixture
def controller(tmp_path):
    """Return a function: a launcher's class or call, to a process that has started a job by it."""
    started = []

    def start(launcher):
        code = (
            "import time\nfrom pathlib import Path\n"
            "from rlzoo_plus.config.schema import InfraConfig\n"
            "from rlzoo_plus.sweeps.launchers.launcher import JobSpec\n"
            "from rlzoo_plus.sweeps.launchers.launcher import make_launcher\n"
            f"data = {{'file': {str(tmp_path / 'file')!r}}}\n"
            f"spec = JobSpec('w', 'rlzoo_plus.testing.jobs:wait', data, Path('log.txt'))\n"
            f"handle = make_launcher(InfraConfig({launcher}), 1, ()).submit(spec)\n"
            "time.sleep(100)\n"
        )
        started.append(
            subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environ_of_tests())
        )
        wait_for(lambda: (tmp_path / "file").exists() and (tmp_path / "file").read_text())
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_numerical_libraries_find_one_thread_set(tmp_path, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    launcher = LocalLauncher(1)
    spec = JobSpec("threads", "support.jobs:threads", {}, tmp_path / "log.txt")
    end_of(launcher, launcher.submit(spec))
    assert "OMP_NUM_THREADS" not in os.environ
    assert (tmp_path / "log.txt").read_text().split()[-1] == "1"


@pytest.mark.parametrize(
    "launcher", ["name='local'", pytest.param("name='ray', workers=1", marks=pytest.mark.slow)]
)
def test_jobs_of_a_killed_controller_stop_cleanly(controller, tmp_path, launcher):
    if "ray" in launcher:
        pytest.importorskip("ray")
    process = controller(launcher)
    process.kill()
    wait_for(lambda: (tmp_path / "file").read_text() == "stopped", timeout_s=30)


@pytest.mark.training
def test_jobs_of_slurm_live_on_without_their_controller(controller, tmp_path):
    pytest.importorskip("submitit")
    process = controller("name='slurm', cluster='local', workers=1")
    process.kill()
    process.wait()
    time.sleep(2.0)
    job = int((tmp_path / "file").read_text())
    assert is_alive(job)
    os.kill(job, signal.SIGTERM)
    wait_for(lambda: (tmp_path / "file").read_text() == "stopped")
    wait_for(lambda: not is_alive(job))


def test_memory_is_that_of_a_whole_session():
    assert session_memory_bytes(os.getsid(0)) > 10 * 2**20
    assert session_memory_bytes(2**22 + 1) == 0


def test_whoever_reads_the_output_need_not_wait_for_the_fork_server(tmp_path):
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(30)")
    code = (
        "from rlzoo_plus.sweeps.launchers.local import start_server; "
        "start_server(['slow_to_import'])"
    )
    environ = environ_of_tests()
    environ["PYTHONPATH"] += os.pathsep + str(tmp_path)
    words = [sys.executable, "-c", f"{code}; print('done')"]
    done = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=15)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_a_script_without_a_guard_is_not_run_again_by_its_jobs(tmp_path):
    (tmp_path / "script.py").write_text(
        "from pathlib import Path\n"
        "from rlzoo_plus.sweeps.launchers.launcher import JobSpec\n"
        "from rlzoo_plus.sweeps.launchers.local import LocalLauncher\n"
        "from rlzoo_plus.sweeps.launchers.scheduler import run_together\n"
        "print('from the beginning')\n"
        "spec = JobSpec('say', 'rlzoo_plus.testing.jobs:say', {'word': 'hello'}, Path('log.txt'))\n"
        "run_together(LocalLauncher(1), [spec])\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=environ_of_tests(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("from the beginning\n", "")
    log = (tmp_path / "log.txt").read_text()
    assert "said hello" in log
    assert "from the beginning" not in log
